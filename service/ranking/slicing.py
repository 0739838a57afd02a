"""Work on many documents in threads beside the event loop, a slice of documents at a time.

A request has a few slices in hand at once and no more, and large ones have threads of their own: however many they are, no small
one waits behind them. One whose client has gone, or whose time is up, stops at the next slice, or within one at the next pause:
a slice may be one long text. The tokenizer gives the interpreter lock back while it works; the rest of a slice is short.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from service.machine import ASYNCIO, Clock, Machine
from service.pace import Pace
from service.slices import slices

SLICE_DOCUMENTS = 32
SLICE_CHARS = 200_000
TELLING_CHARS = 5_000  # what smaller slices take is what a slice takes, whatever is in it
LEAST_SLICE_CHARS, SLICES_IN_TIME = 10_000, 8  # with a deadline slices are smaller: one is done in time or not at all
SLICES_IN_HAND = 2  # one in the tokenizer, one in Python
LARGE_CHARS = SLICES_IN_HAND * SLICE_CHARS  # of a request, beyond which it goes where large ones go

T = TypeVar("T")


class AbandonedError(Exception):
    """Nobody waits for the work any more."""


class Watch:
    """Watches a slice at work: the work calls it at its pauses with the characters that it has done since.

    It measures the pace, of a long slice at each pause, so that the wait of newcomers is known before it ends.

    Args:
        chars: of the slice.
        pace: receives the measurements.
        abandoned: is set when nobody waits for the work any more.
        clock: measures.
    """

    def __init__(self, chars: int, pace: Pace, abandoned: threading.Event, clock: Clock = ASYNCIO.now) -> None:
        self._chars = chars
        self._long = chars > LARGE_CHARS
        self._pace, self._abandoned, self._clock = pace, abandoned, clock
        self._since = 0.0

    def begin(self) -> None:
        """The work begins, having waited for a thread. Raises AbandonedError."""
        self._since = self._clock()
        self(0)

    def __call__(self, chars: int) -> None:
        """So many characters more are done. Raises AbandonedError."""
        if self._long and chars >= TELLING_CHARS:
            self._measure(chars)
        if self._abandoned.is_set():
            raise AbandonedError

    def end(self) -> None:
        """The slice is done."""
        if self._chars >= TELLING_CHARS:
            self._measure(self._chars)

    def _measure(self, chars: int) -> None:
        now = self._clock()
        self._pace.measured(chars, now - self._since)
        self._chars, self._since = self._chars - chars, now


Work = Callable[[range, Watch], list[T]]
"""From the numbers of a slice's documents to what is made of them."""


class Threads:
    """That prepare: large requests, however many, keep no small one waiting, and slices of documents no query.

    Args:
        number: see below.
        machine: see below.

    Attributes:
        number: of those for each.
        machine: that has them, and whose clock says when time is up.
    """

    def __init__(self, number: int, machine: Machine = ASYNCIO) -> None:
        self.number = number
        self.machine = machine
        self._small = machine.pool(number, "prepare")
        self._large = machine.pool(number, "prepare-large")
        self._short = machine.pool(number, "prepare-query")  # a deadline may be over before others' slices are done

    async def run(self, work: Callable[..., T], *arguments: Any, large: bool = False) -> T:
        """Do the work in one of them."""
        return await self.machine.run(self._large if large else self._small, work, *arguments)

    async def run_short(self, work: Callable[..., T], *arguments: Any) -> T:
        """Do work that is short, and that a request can do nothing without, in a thread that no slice occupies."""
        return await self.machine.run(self._short, work, *arguments)

    def close(self) -> None:
        """Stop them after the work in hand."""
        for pool in (self._small, self._large, self._short):
            pool.shutdown(wait=True, cancel_futures=True)

    async def in_slices(
        self, chars_of: Sequence[int], work: Work[T], until: float | None, pace: Pace, *, aside: bool = False
    ) -> list[T | None]:
        """What `work` makes of all documents, in their order; aside: as of a large request.

        None for what is not done when time is up, which is not waited for, or would not be done in time by this pace.
        """
        found: list[T | None] = [None] * len(chars_of)
        large = aside or sum(chars_of) > LARGE_CHARS
        abandoned, clock = threading.Event(), self.machine.now
        most = SLICE_CHARS if until is None else _slice_chars(until - clock(), pace)
        todo = slices(chars_of, SLICE_DOCUMENTS, most)

        async def one_after_the_other() -> None:
            first = True  # tried whatever was reckoned: a pace that went wrong is measured again
            for numbers in todo:
                chars = sum(chars_of[number] for number in numbers)
                now = clock()
                if until is not None and (now >= until or (not first and now + pace.estimate(chars) > until)):
                    continue
                first = False
                made = await self.run(_watched, work, numbers, Watch(chars, pace, abandoned, clock), large=large)
                found[numbers.start : numbers.stop] = made

        try:
            with suppress(TimeoutError):
                async with self.machine.timeout(until):
                    await self.machine.together([one_after_the_other() for _ in range(SLICES_IN_HAND)])
        finally:
            abandoned.set()
        return found


def _slice_chars(left: float, pace: Pace) -> int:
    """Characters of a slice, so that a few fit in the seconds that are left."""
    fit = left / SLICES_IN_TIME / pace.seconds if pace.seconds else SLICE_CHARS
    return int(min(max(fit, LEAST_SLICE_CHARS), SLICE_CHARS))


def _watched(work: Work[T], numbers: range, watch: Watch) -> list[T]:
    watch.begin()
    made = work(numbers, watch)
    watch.end()
    return made
