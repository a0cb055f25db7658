# SPDX-License-Identifier: Apache-2.0
"""Tells gpushare about the program itself: the functions of gpushare.h, by ctypes, without any dependency.

    from gpushare_patch import api
    api.on_pressure(torch.cuda.empty_cache)

Without gpushare in the process `available()` is False, and every function does nothing and returns False or 0: so they can stay in a
program that also runs without it. The manual page gpushare.h(3) says more. Any thread may call anything here."""
import ctypes
import errno
import os

AUTO, INTERACTIVE, BATCH, BACKGROUND = range(4)
CLASSES = {"auto": AUTO, "interactive": INTERACTIVE, "batch": BATCH, "background": BACKGROUND}

_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_TYPES = {
    "discard": (ctypes.c_int64, [ctypes.c_void_p, ctypes.c_size_t]),
    "keep": (ctypes.c_int64, [ctypes.c_void_p, ctypes.c_size_t]),
    "idle": (ctypes.c_int, []),
    "set_class": (ctypes.c_int, [ctypes.c_int]),
    "suspend": (ctypes.c_int, []),
    "resume": (ctypes.c_int, []),
    "on_pressure": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p]),
}
_kept = []  # callbacks that the library may still call: they live as long as the process


def _find():
    """The functions by name; none where gpushare is not in this process. They are sought where a patched interpreter has them."""
    try:
        process = ctypes.CDLL(None)
        found = {name: getattr(process, "gpushare_1_" + name) for name in _TYPES}
    except (OSError, AttributeError):
        return {}
    for name, function in found.items():
        function.restype, function.argtypes = _TYPES[name]
    return found


_functions = _find()


def _call(name, *arguments):
    """The function's result; None without gpushare. Its errors are exceptions."""
    function = _functions.get(name)
    result = -errno.ENOSYS if function is None else function(*arguments)
    if result == -errno.ENOSYS:
        return None
    if result < 0:
        raise OSError(-result, f"{name}: {os.strerror(-result)}")
    return result


def available():
    """Whether gpushare is in this process."""
    return bool(_functions)


def _extent(what, nbytes):
    """(address, bytes) of an address, a tensor, or an array with __cuda_array_interface__. A tensor must be contiguous."""
    if isinstance(what, int):
        if nbytes is None:
            raise TypeError("an address needs a number of bytes")
        address = what
    elif hasattr(what, "data_ptr"):
        if not what.is_contiguous():
            raise ValueError("the tensor is not contiguous")
        address = what.data_ptr()
        nbytes = what.numel() * what.element_size() if nbytes is None else nbytes
    elif hasattr(what, "__cuda_array_interface__"):
        if getattr(what, "nbytes", None) is None or what.__cuda_array_interface__.get("strides") is not None:
            raise ValueError("the array is not contiguous, or does not say how large it is")
        address = what.__cuda_array_interface__["data"][0]
        nbytes = what.nbytes if nbytes is None else nbytes
    else:
        raise TypeError(f"{type(what).__name__} is no address, tensor or array")
    if address < 0 or nbytes < 0 or address >= 1 << 64 or nbytes >= 1 << 64:
        raise ValueError("not within the address space")
    return address, nbytes


def discard(what, nbytes=None):
    """The contents are not needed until they are written again. what: a tensor, an array, or an address with nbytes. Holds until the
    process submits any work. Returns the bytes that need not move (0 without gpushare)."""
    return _call("discard", *_extent(what, nbytes)) or 0


def keep(what, nbytes=None):
    """Cancels a discard. False without gpushare."""
    return _call("keep", *_extent(what, nbytes)) is not None


def idle():
    """Says that the program has no GPU work now. False without gpushare."""
    return _call("idle") is not None


def set_class(name):
    """How the daemon treats the program: "auto", "interactive", "batch" or "background". False without gpushare."""
    number = CLASSES.get(name) if isinstance(name, str) else name
    if number not in CLASSES.values():
        raise ValueError(f"{name!r} is no class: {', '.join(CLASSES)}")
    return _call("set_class", number) is not None


def suspend():
    """All memory leaves the devices, and CUDA calls wait until resume(). False without gpushare."""
    return _call("suspend") is not None


def resume():
    """Ends suspend(). False without gpushare."""
    return _call("resume") is not None


def on_pressure(callback):
    """callback() is called, in another thread, before memory leaves the device; None: no longer. False without gpushare.
    An exception in it is printed and ends that call of it."""
    wrapped = None
    if callback is not None:
        if not callable(callback):
            raise TypeError("the callback cannot be called")
        wrapped = _CALLBACK(lambda _argument: callback())
        _kept.append(wrapped)
    return _call("on_pressure", ctypes.cast(wrapped, ctypes.c_void_p) if wrapped is not None else None, None) is not None
