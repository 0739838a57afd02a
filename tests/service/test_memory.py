"""Memory that is freed in pieces of a kilobyte, which the C library keeps."""

import asyncio
import ctypes
import sys
from collections.abc import Callable

import pytest

from service.memory import give_back, keep_giving_back
from training.evaluate.resources import MB, resident_mb

PIECES, SIZE = 100_000, 1000


async def _for_a_second() -> None:
    """The service's own task, which looks at the process's memory all the time; it has just grown."""
    await asyncio.wait([asyncio.create_task(keep_giving_back(pause=0.01, growth=-PIECES * SIZE))], timeout=1)


@pytest.mark.skipif(sys.platform != "linux", reason="no other system tells what is resident as Linux does")
@pytest.mark.parametrize("returning", [give_back, lambda: asyncio.run(_for_a_second())], ids=["once", "by the service"])
def test_what_was_freed_is_given_back(returning: Callable[[], None]) -> None:
    library = ctypes.CDLL(None)
    if not hasattr(library, "malloc_trim"):
        pytest.skip("this C library keeps nothing that it could be asked for")
    library.malloc.restype, library.malloc.argtypes, library.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
    pieces = [library.malloc(SIZE) for _ in range(PIECES)]
    for piece in pieces:
        ctypes.memset(piece, 1, SIZE)
    for piece in pieces[:-1]:  # the last one is at the top, and holds what is below
        library.free(piece)
    before = resident_mb("VmRSS")
    returning()
    library.free(pieces[-1])
    after = resident_mb("VmRSS")
    assert before is not None
    assert after is not None
    assert after < before - PIECES * SIZE / 2 / MB
