# SPDX-License-Identifier: Apache-2.0
"""gpushare in a Python environment: several CUDA programs share one GPU, each with the whole memory.

python -m gpushare_patch enable|disable|status
"""
from gpushare_patch.environment import disable, enable, status

__all__ = ["enable", "disable", "status"]
