"""How the C library gives memory back: what a large body took must not stay with the process.

Knows glibc; where there is another library nothing is done. Always: blocks of `LARGE_BYTES` and more are the system's
again when they are freed. By itself glibc lets them grow the heap after the first was freed, and the heap keeps them.
"""

import ctypes

LARGE_BYTES = 1 << 20
_M_MMAP_THRESHOLD = -3
"""Of mallopt(3)."""


def give_back_large_blocks() -> bool:
    """For this process, from now on; whether the C library can."""
    choose = getattr(ctypes.CDLL(None), "mallopt", None)
    return choose is not None and bool(choose(_M_MMAP_THRESHOLD, LARGE_BYTES))
