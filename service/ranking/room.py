"""The memory in which texts are prepared: what does not fit beside others waits."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from service.errors import RequestError
from service.telemetry.metrics import Metrics

MOST_SHARE = 0.75  # of the room, which one slice takes at most, so that small ones still fit beside it
SMALL_SHARE = 0.125  # of the room: what needs no more does not queue behind larger ones


class Room:
    """Counts the memory of the slices that are prepared. Only the event loop uses it.

    Args:
        n_bytes: of memory. A slice that needs more than MOST_SHARE of it is prepared alone, but for small ones.
        patience: seconds that a request waits for its first slice's room before it is refused; None: as long as it takes.
        metrics: counts refusals.
    """

    def __init__(self, n_bytes: int, patience: float | None, metrics: Metrics) -> None:
        self._free = self._all = n_bytes
        self._patience = patience
        self._metrics = metrics
        self._waiting: dict[asyncio.Future[None], int] = {}  # the bytes of each, in the order of their arrival

    @asynccontextmanager
    async def taken(self, n_bytes: int, *, patient: bool) -> AsyncIterator[None]:
        """Take this much memory, or as much as one slice may have, until the context is left.

        Args:
            n_bytes: of memory.
            patient: whether to wait as long as it takes.

        Raises RequestError 429 after `patience` seconds.
        """
        n_bytes = min(n_bytes, int(MOST_SHARE * self._all))
        if n_bytes <= self._free and (not self._waiting or self._is_small(n_bytes)):
            self._free -= n_bytes
        else:
            await self._wait(n_bytes, None if patient else self._patience)
        try:
            yield
        finally:
            self._give_back(n_bytes)

    async def _wait(self, n_bytes: int, seconds: float | None) -> None:
        """Wait until it is this one's turn, at most so many seconds. Raises RequestError 429."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = n_bytes
        came = False
        try:
            came = bool((await asyncio.wait([turn], timeout=seconds))[0])
        finally:
            if not came:  # those behind it may fit now; if its turn came while the wait was cancelled, its memory is free again
                self._give_back(n_bytes if self._waiting.pop(turn, None) is None else 0)
        if not came and seconds is not None:
            self._metrics.add("refused", why="wait")
            problem = f"for {seconds:g} s, which is the limit, there was no memory to prepare its texts beside others"
            raise RequestError(429, f"busy: {problem}; try again later, or another replica", retry_after=max(1, math.ceil(seconds)))

    def _is_small(self, n_bytes: int) -> bool:
        return n_bytes <= SMALL_SHARE * self._all

    def _give_back(self, n_bytes: int) -> None:
        """Free memory, for those that wait for it."""
        self._free += n_bytes
        in_turn = True
        for turn, needed in list(self._waiting.items()):
            if needed > self._free or not (in_turn or self._is_small(needed)):
                in_turn = False
                continue
            del self._waiting[turn]
            self._free -= needed
            turn.set_result(None)
