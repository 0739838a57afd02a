"""Works on many documents in threads beside the event loop, a slice of documents or a short turn at a time.

A request has only a few slices in hand at once, and large requests have their own threads: however many there are, no small request
waits behind them. When a request's client has gone, or its time is up, its work stops at the next slice, or at the next pause in a
slice, which may be one long text. The tokenizer releases the interpreter lock while it works; the rest of a slice is short.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from typing import Any, Generic, NamedTuple, TypeVar

from keyblock.ranking.steps import Steps
from service.errors import RequestError
from service.pace import Pace, slices
from service.ranking.room import Room

SLICE_DOCUMENTS = 32
SLICE_CHARS = 200_000  # of English; `service.ranking.preparation` says how many characters of other texts cost as much
MIN_MEASURED_CHARS = 5_000  # smaller slices are not measured: their time is the fixed cost of a slice, whatever they hold
LEAST_SLICE_CHARS, SLICES_IN_TIME = 10_000, 8  # with a deadline slices are smaller: a slice is done in time or not at all
SLICES_IN_HAND = 2  # one in the tokenizer, one in Python
TURN_SECONDS = 0.02  # for which one request's answer is completed before another one's
LARGE_CHARS = SLICES_IN_HAND * SLICE_CHARS  # a request of more characters runs in the threads of large requests

T = TypeVar("T")


class Done(NamedTuple, Generic[T]):
    """The result of work in turns, and the seconds that it took in its thread."""

    result: T
    seconds: float


class AbandonedError(Exception):
    """Nobody waits for the work any more."""


class Watch:
    """Watches the work on a slice: at each pause the work calls it with the number of characters done since the last.

    It measures the pace, of a long slice at each pause, so that the waiting time of new requests is known before the slice ends.

    Args:
        cost: of the slice, in characters of English.
        chars: characters of the slice; None: as many as its cost.
        pace: gets the measurements.
        abandoned: is set when nobody waits for the work any more.
    """

    def __init__(self, cost: int, pace: Pace, abandoned: threading.Event, chars: int | None = None) -> None:
        self._cost: float = cost
        self._each = cost / chars if chars else 1.0
        self._long = cost > LARGE_CHARS
        self._pace, self._abandoned = pace, abandoned
        self._since = 0.0

    def begin(self) -> None:
        """Note that the work begins, after its wait for a thread. Raises AbandonedError."""
        self._since = time.perf_counter()
        self(0)

    def __call__(self, chars: int) -> None:
        """Note that `chars` more characters are done. Raises AbandonedError."""
        if self._long and chars >= MIN_MEASURED_CHARS:
            self._measure(chars * self._each)
        if self._abandoned.is_set():
            raise AbandonedError

    def end(self) -> None:
        """Note that the slice is done."""
        if self._cost >= MIN_MEASURED_CHARS:
            self._measure(self._cost)

    def _measure(self, cost: float) -> None:
        now = time.perf_counter()
        self._pace.measured(cost, now - self._since)
        self._cost, self._since = self._cost - cost, now


Work = Callable[[range, Watch], list[T]]
"""Maps the numbers of a slice's documents to their results."""


class Texts(NamedTuple):
    """The sizes of texts that are prepared.

    Attributes:
        chars: of each.
        footprints: the most bytes of memory that each takes while it is prepared.
    """

    chars: Sequence[int]
    footprints: Sequence[int]

    def chars_of(self, numbers: range) -> int:
        """Characters of a slice."""
        return sum(self.chars[number] for number in numbers)


class Threads:
    """Threads that prepare: no number of large requests holds up a small one, and no slices of documents hold up a query.

    Args:
        number: see below.
        room: the memory for slices; none: as much as they take.

    Attributes:
        number: of threads for each of the four kinds of work.
    """

    def __init__(self, number: int, room: Room | None = None) -> None:
        self.number = number
        self._room = room
        self._small = ThreadPoolExecutor(number, "prepare")
        self._large = ThreadPoolExecutor(number, "prepare-large")
        self._answers = ThreadPoolExecutor(number, "answer")  # completed in turns, so that none waits long for another
        self._short = ThreadPoolExecutor(number, "prepare-query")  # a deadline may pass before other requests' slices are done

    async def run(self, work: Callable[..., T], *arguments: Any, large: bool = False) -> T:
        """Run the work in one of the threads."""
        return await asyncio.get_running_loop().run_in_executor(self._large if large else self._small, work, *arguments)

    async def run_short(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run short work that a request must have, in a thread that no slice occupies."""
        return await asyncio.get_running_loop().run_in_executor(self._short, work, *arguments)

    def close(self) -> None:
        """Stop the threads after the work in hand."""
        for pool in (self._small, self._large, self._answers, self._short):
            pool.shutdown(wait=True, cancel_futures=True)

    async def in_turns(self, steps: Steps[T]) -> Done[T]:
        """Do work in steps, which takes turns with that of other requests. Cancelling the await stops it."""
        seconds = 0.0
        while True:
            results, taken = await asyncio.get_running_loop().run_in_executor(self._answers, _take_turn, steps)
            seconds += taken
            for result in results:
                return Done(result, seconds)

    async def in_slices(
        self,
        costs: Sequence[int],
        work: Work[T],
        until: float | None,
        pace: Pace,
        texts: Texts | None = None,
    ) -> list[T | None]:
        """Apply `work` to all documents, and return the results in their order. Work that is late is not waited for.

        Args:
            costs: of the documents, in characters of English.
            work: done on slices of them.
            until: deadline; None: no deadline.
            pace: seconds for each unit of cost; gets the measurements.
            texts: the documents' sizes, if their texts are prepared.

        Returns None for documents that are not done in time, or would not be at this pace.

        Raises RequestError 429 if there is no memory for the first slice for too long, and no deadline.
        """
        found: list[T | None] = [None] * len(costs)
        large = sum(costs) > LARGE_CHARS
        abandoned = threading.Event()
        slice_cost = SLICE_CHARS if until is None else _slice_chars(until - time.perf_counter(), pace)
        todo = slices(costs, SLICE_DOCUMENTS, slice_cost)
        begun = until is not None  # then nothing is refused any more

        async def run_slices() -> None:
            nonlocal begun
            first = True  # the first slice runs whatever the estimate: so a wrong pace is measured again
            for numbers in todo:
                cost = sum(costs[number] for number in numbers)
                now = time.perf_counter()
                if until is not None and (now >= until or (not first and now + pace.estimate(cost) > until)):
                    continue
                first = False
                watch = Watch(cost, pace, abandoned, None if texts is None else texts.chars_of(numbers))
                async with self._memory_for(numbers, texts if large else None, patient=begun):
                    begun = True
                    made = await self.run(_run_watched, work, numbers, watch, large=large)
                found[numbers.start : numbers.stop] = made

        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(None if until is None else until - time.perf_counter()), asyncio.TaskGroup() as group:
                    for _ in range(SLICES_IN_HAND):
                        group.create_task(run_slices())
        except ExceptionGroup as failed:
            refused = failed.subgroup(RequestError)
            raise failed if refused is None else refused.exceptions[0] from None
        finally:
            abandoned.set()
        return found

    def _memory_for(self, numbers: range, texts: "Texts | None", *, patient: bool) -> AbstractAsyncContextManager[object]:
        """The memory in which a slice is prepared."""
        if self._room is None or texts is None:
            return nullcontext()
        return self._room.taken(sum(texts.footprints[number] for number in numbers), patient=patient)


def _slice_chars(left: float, pace: Pace) -> int:
    """Characters of a slice, so that a few slices fit in `left` seconds."""
    fit = left / SLICES_IN_TIME / pace.seconds if pace.seconds else SLICE_CHARS
    return int(min(max(fit, LEAST_SLICE_CHARS), SLICE_CHARS))


def _take_turn(steps: Steps[T]) -> tuple[list[T], float]:
    """Go on with the work for TURN_SECONDS. Returns its result, if there is one by then, and the seconds taken."""
    began = time.perf_counter()
    try:
        while time.perf_counter() < began + TURN_SECONDS:
            next(steps)
    except StopIteration as end:
        return [end.value], time.perf_counter() - began
    return [], time.perf_counter() - began


def _run_watched(work: Work[T], numbers: range, watch: Watch) -> list[T]:
    watch.begin()
    made = work(numbers, watch)
    watch.end()
    return made
