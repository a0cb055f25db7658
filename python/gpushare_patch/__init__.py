# SPDX-License-Identifier: Apache-2.0
"""gpushare from Python: `from gpushare_patch import api`."""
