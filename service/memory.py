"""Returns memory to the system that the process has freed, and its C library keeps."""

import ctypes


def give_back() -> None:
    """Return freed memory to the system, if the C library can, as glibc does."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
