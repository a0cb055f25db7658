# SPDX-License-Identifier: Apache-2.0
"""gpushare in a Python environment: several CUDA programs share one GPU, each with the whole memory.

python -m gpushare_patch enable|disable|status prepares this environment; `from gpushare_patch import api` is for programs.
"""
__all__ = ["enable", "disable", "status"]


def __getattr__(name):  # programs that only want the api need nothing of the rest
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from gpushare_patch import environment
    return getattr(environment, name)
