"""Works on many documents in threads beside the event loop, a slice of documents at a time.

A request has only a few slices in hand at once, and large requests have their own threads: however many there are, no small request
waits behind them. When a request's client has gone, or its time is up, its work stops at the next slice, or at the next pause in a
slice, which may be one long text. The tokenizer releases the interpreter lock while it works; the rest of a slice is short.
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
MIN_MEASURED_CHARS = 5_000  # smaller slices are not measured: their time is the fixed cost of a slice, whatever they hold
LEAST_SLICE_CHARS, SLICES_IN_TIME = 10_000, 8  # with a deadline slices are smaller: a slice is done in time or not at all
SLICES_IN_HAND = 2  # one in the tokenizer, one in Python
LARGE_CHARS = SLICES_IN_HAND * SLICE_CHARS  # a request of more characters runs in the threads of large requests

T = TypeVar("T")


class AbandonedError(Exception):
    """Nobody waits for the work any more."""


class Watch:
    """Watches the work on a slice: at each pause the work calls it with the number of characters done since the last.

    It measures the pace, of a long slice at each pause, so that the waiting time of new requests is known before the slice ends.

    Args:
        chars: characters of the slice.
        pace: gets the measurements.
        abandoned: is set when nobody waits for the work any more.
        clock: measures time, in seconds.
    """

    def __init__(self, chars: int, pace: Pace, abandoned: threading.Event, clock: Clock = ASYNCIO.now) -> None:
        self._chars = chars
        self._long = chars > LARGE_CHARS
        self._pace, self._abandoned, self._clock = pace, abandoned, clock
        self._since = 0.0

    def begin(self) -> None:
        """Note that the work begins, after its wait for a thread. Raises AbandonedError."""
        self._since = self._clock()
        self(0)

    def __call__(self, chars: int) -> None:
        """Note that `chars` more characters are done. Raises AbandonedError."""
        if self._long and chars >= MIN_MEASURED_CHARS:
            self._measure(chars)
        if self._abandoned.is_set():
            raise AbandonedError

    def end(self) -> None:
        """Note that the slice is done."""
        if self._chars >= MIN_MEASURED_CHARS:
            self._measure(self._chars)

    def _measure(self, chars: int) -> None:
        now = self._clock()
        self._pace.measured(chars, now - self._since)
        self._chars, self._since = self._chars - chars, now


Work = Callable[[range, Watch], list[T]]
"""Maps the numbers of a slice's documents to their results."""


class Threads:
    """Threads that prepare: no number of large requests holds up a small one, and no slices of documents hold up a query.

    Args:
        number: see below.
        machine: see below.

    Attributes:
        number: of threads for each of the three kinds of work.
        machine: makes the threads; its clock counts deadlines.
    """

    def __init__(self, number: int, machine: Machine = ASYNCIO) -> None:
        self.number = number
        self.machine = machine
        self._small = machine.pool(number, "prepare")
        self._large = machine.pool(number, "prepare-large")
        self._short = machine.pool(number, "prepare-query")  # a deadline may pass before other requests' slices are done

    async def run(self, work: Callable[..., T], *arguments: Any, large: bool = False) -> T:
        """Run the work in one of the threads."""
        return await self.machine.run(self._large if large else self._small, work, *arguments)

    async def run_short(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run short work that a request must have, in a thread that no slice occupies."""
        return await self.machine.run(self._short, work, *arguments)

    def close(self) -> None:
        """Stop the threads after the work in hand."""
        for pool in (self._small, self._large, self._short):
            pool.shutdown(wait=True, cancel_futures=True)

    async def in_slices(
        self, chars_of: Sequence[int], work: Work[T], until: float | None, pace: Pace, *, as_large: bool = False
    ) -> list[T | None]:
        """Apply `work` to all documents, and return the results in their order; `as_large` runs it like a large request.

        None for documents that are not done in time, or would not be at this pace. Work that is late is not waited for.
        """
        found: list[T | None] = [None] * len(chars_of)
        large = as_large or sum(chars_of) > LARGE_CHARS
        abandoned, clock = threading.Event(), self.machine.now
        slice_chars = SLICE_CHARS if until is None else _slice_chars(until - clock(), pace)
        todo = slices(chars_of, SLICE_DOCUMENTS, slice_chars)

        async def run_slices() -> None:
            first = True  # the first slice runs whatever the estimate: so a wrong pace is measured again
            for numbers in todo:
                chars = sum(chars_of[number] for number in numbers)
                now = clock()
                if until is not None and (now >= until or (not first and now + pace.estimate(chars) > until)):
                    continue
                first = False
                made = await self.run(_run_watched, work, numbers, Watch(chars, pace, abandoned, clock), large=large)
                found[numbers.start : numbers.stop] = made

        try:
            with suppress(TimeoutError):
                async with self.machine.timeout(until):
                    await self.machine.together([run_slices() for _ in range(SLICES_IN_HAND)])
        finally:
            abandoned.set()
        return found


def _slice_chars(left: float, pace: Pace) -> int:
    """Characters of a slice, so that a few slices fit in `left` seconds."""
    fit = left / SLICES_IN_TIME / pace.seconds if pace.seconds else SLICE_CHARS
    return int(min(max(fit, LEAST_SLICE_CHARS), SLICE_CHARS))


def _run_watched(work: Work[T], numbers: range, watch: Watch) -> list[T]:
    watch.begin()
    made = work(numbers, watch)
    watch.end()
    return made
