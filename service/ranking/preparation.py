"""Prepares documents and chooses blocks of them, in threads beside the event loop, a slice of documents at a time.

What a text costs is estimated before it is prepared. A million characters of English prose take 0.12 s and 6 MB, of one-letter
words and marks up to 1.4 s and 80 MB, of Chinese 4.3 s and 60 MB (lab/notes/faults.md). So time is counted by
characters and, outside ASCII, by their bytes of UTF-8, and memory by the worst kind: an estimate that is too high costs a little
waiting, one that is too low takes from others.

A request has only a few slices in hand at once, and large requests have their own threads: however many there are, no small request
waits behind them. When a request's client has gone, or its time is up, its work stops at the next slice, or at the next pause in a
slice, which may be one long text. The tokenizer releases the interpreter lock while it works; the rest of a slice is short.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from typing import NamedTuple, TypeVar

from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument, PreparedQuery, content_digest
from keyblock.ranking.pruning import Steps
from service.call import ASSUMED_CHARS, Documents
from service.errors import RequestError
from service.lru import DocumentCache
from service.pace import Pace, slices
from service.ranking.room import Room
from service.telemetry.metrics import Metrics

WIDE = 12  # characters of English that take as much time as a byte of UTF-8 beyond one a character
BYTES = 80  # of memory while a text is prepared, for a byte of UTF-8
COLD_SECONDS = 3e-7  # for a character of English, until it is measured
PIECE = 1 << 18  # characters that are counted at once
FEW = 1 / 16  # of the characters: bytes beyond one each that may go uncounted
SLICE_DOCUMENTS = 32
SLICE_CHARS = 200_000  # of English; WIDE counts other texts
MIN_MEASURED_CHARS = 5_000  # smaller slices are not measured: their time is the fixed cost of a slice, whatever they hold
LEAST_SLICE_CHARS, SLICES_IN_TIME = 10_000, 8  # with a deadline slices are smaller: a slice is done in time or not at all
SLICES_IN_HAND = 2  # one in the tokenizer, one in Python
TURN_SECONDS = 0.02  # for which one request's answer is completed before another one's
LARGE_CHARS = SLICES_IN_HAND * SLICE_CHARS  # a request of more characters runs in the threads of large requests

T = TypeVar("T")


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

    async def run_short(self, work: Callable[[], T]) -> T:
        """Run short work that a request must have, in a thread that no slice occupies."""
        return await asyncio.get_running_loop().run_in_executor(self._short, work)

    def close(self) -> None:
        """Stop the threads after the work in hand."""
        for pool in (self._small, self._large, self._answers, self._short):
            pool.shutdown(wait=True, cancel_futures=True)

    async def in_turns(self, steps: Steps[T]) -> tuple[T, float]:
        """Do work in steps, which takes turns with that of other requests. Cancelling the await stops it.

        Returns the result, and the seconds that it took in its thread.
        """
        seconds = 0.0
        while True:
            results, taken = await asyncio.get_running_loop().run_in_executor(self._answers, _take_turn, steps)
            seconds += taken
            for result in results:
                return result, seconds

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
        pool, room = (self._large, self._room if texts else None) if large else (self._small, None)
        abandoned = threading.Event()
        slice_cost = SLICE_CHARS if until is None else _slice_chars(until - time.perf_counter(), pace)
        todo = slices(costs, SLICE_DOCUMENTS, slice_cost)
        begun = asyncio.Event()  # then nothing is refused any more
        if until is not None or room is None:
            begun.set()

        async def run_slices() -> None:
            first = True  # the first slice runs whatever the estimate: so a wrong pace is measured again
            for numbers in todo:
                cost = sum(costs[number] for number in numbers)
                now = time.perf_counter()
                if until is not None and (now >= until or (not first and now + pace.estimate(cost) > until)):
                    continue
                first = False
                watch = Watch(cost, pace, abandoned, sum(texts.chars[number] for number in numbers) if texts else None)
                memory = sum(texts.footprints[number] for number in numbers) if texts else 0
                async with room.taken(memory, patient=begun.is_set()) if room else nullcontext():
                    begun.set()
                    made = await asyncio.get_running_loop().run_in_executor(pool, _run_watched, work, numbers, watch)
                found[numbers.start : numbers.stop] = made

        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(None if until is None else until - time.perf_counter()), asyncio.TaskGroup() as group:
                    group.create_task(run_slices())
                    await begun.wait()  # so that only the first slice's wait for memory can refuse the request
                    for _ in range(SLICES_IN_HAND - 1):
                        group.create_task(run_slices())
        except ExceptionGroup as failed:
            refused = failed.subgroup(RequestError)
            raise failed if refused is None else refused.exceptions[0] from None
        finally:
            abandoned.set()
        return found


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


class Preparer:
    """Prepares the candidates of a request.

    Args:
        pipeline: the bundle's pipeline.
        cache: prepared documents of all pipelines.
        threads: run the work.
        metrics: counts the cache's hits.
        fingerprint: of the preparation, at most 16 bytes; pipelines with the same fingerprint prepare documents in the same way.

    Attributes:
        pace: seconds per character of English of a slice, documents from the cache included.
    """

    def __init__(
        self, pipeline: Pipeline, cache: DocumentCache, threads: Threads, metrics: Metrics, fingerprint: bytes = b""
    ) -> None:
        self.pace, self._choosing_pace = Pace(COLD_SECONDS), Pace()
        self._pipeline = pipeline
        self._fingerprint = fingerprint
        self._cache = cache
        self._threads = threads
        self._metrics = metrics
        self._empty = pipeline.prepare_document("")

    async def query(self, do: Callable[[], PreparedQuery]) -> PreparedQuery:
        """Prepare a query."""
        return await self._threads.run_short(do)

    async def read(
        self, documents: Documents, choose: Callable[[Sequence[PreparedDocument]], list[T]], until: float | None = None
    ) -> list[T | None]:
        """Prepare the documents, unless they are, and apply `choose` to them; in the order given, None where time ran out."""
        if documents.prepared:
            return await self._of_prepared(documents.prepared, choose, until)

        def work(numbers: range, watch: Watch) -> list[T]:
            return choose(self._prepared(documents, numbers, watch))

        return await self._threads.in_slices(costs(documents), work, until, self.pace, _texts(documents))

    async def _of_prepared(
        self,
        prepared: Sequence[PreparedDocument | None],
        choose: Callable[[Sequence[PreparedDocument]], list[T]],
        until: float | None,
    ) -> list[T | None]:
        def work(numbers: range, _: Watch) -> list[T | None]:
            slice_of = [prepared[number] for number in numbers]
            chosen = iter(choose([one for one in slice_of if one is not None]))
            return [None if one is None else next(chosen) for one in slice_of]

        tokens = [0 if one is None else len(one.token_ids) for one in prepared]
        return await self._threads.in_slices(tokens, work, until, self._choosing_pace)

    async def pack(
        self, tokens: Sequence[int], choose: Callable[[Sequence[int]], list[T]], until: float | None = None
    ) -> list[T | None]:
        """Apply `choose` to the numbers of documents of these tokens; it is quick, and its time depends on the tokens."""
        return await self._threads.in_slices(tokens, lambda numbers, _: choose(numbers), until, self._choosing_pace)

    async def stored(
        self, texts: Sequence[str], titles: Sequence[str], keep: Callable[[int, PreparedDocument], T], threads: Threads
    ) -> list[T]:
        """Prepare documents for the store, without the cache. Returns the results of `keep`, in the order given.

        Args:
            texts: of the documents.
            titles: of the documents.
            keep: gets each document's number and preparation.
            threads: others than those of ranking, with memory of their own: uploads hold up nobody's ranking.
        """

        def work(numbers: range, watch: Watch) -> list[T]:
            part = slice(numbers.start, numbers.stop)
            prepared = self._pipeline.prepare_documents(texts[part], titles[part], watch)
            return [keep(number, document) for number, document in zip(numbers, prepared, strict=True)]

        chars, utf8 = [len(text) for text in texts], [utf8_bytes(text) for text in texts]
        beside = Texts(chars, [BYTES * one for one in utf8])
        made = await threads.in_slices(list(map(cost, chars, utf8)), work, None, Pace(), beside)
        return [one for one in made if one is not None]

    def _prepared(self, documents: Documents, numbers: range, watch: Watch) -> list[PreparedDocument]:
        """Take each document of the slice from the store or the cache, or prepare and cache it; an unknown one is empty."""
        by_id = documents.by_id
        fresh = by_id.to_prepare(numbers)
        texts, titles = ([all_of[number] for number in fresh] for all_of in (documents.texts, documents.titles))
        made = dict(zip(fresh, self._from_texts(texts, titles, watch), strict=True))
        by_id.renewed.update((by_id.ids[number], one) for number, one in made.items() if number in by_id.ids)
        return [made.get(number) or by_id.prepared(number) or self._empty for number in numbers]

    def _from_texts(self, texts: list[str], titles: list[str], watch: Watch) -> list[PreparedDocument]:
        if not self._cache.capacity:
            return self._pipeline.prepare_documents(texts, titles, watch)
        keys = [content_digest(title, text, self._fingerprint) for text, title in zip(texts, titles, strict=True)]
        known = {key: document for key in dict.fromkeys(keys) if (document := self._cache.get(key)) is not None}
        new = {key: number for number, key in enumerate(keys) if key not in known}
        if new:
            new_texts, new_titles = ([all_of[n] for n in new.values()] for all_of in (texts, titles))
            fresh = self._pipeline.prepare_documents(new_texts, new_titles, watch)
            for key, document in zip(new, fresh, strict=True):
                self._cache.put(key, document)
                known[key] = document
        self._metrics.add("cache_lookups", len(keys) - len(new), outcome="hit")
        self._metrics.add("cache_lookups", len(new), outcome="miss")
        self._metrics.set("cache_bytes", self._cache.nbytes)
        return [known[key] for key in keys]


def utf8_bytes(text: str) -> int:
    """The bytes of a text in UTF-8."""
    if text.isascii():
        return len(text)
    return sum(len(text[start : start + PIECE].encode("utf-8", "surrogatepass")) for start in range(0, len(text), PIECE))


def cost(n_chars: int, n_bytes: int) -> int:
    """The time that a text takes, in characters of English."""
    return n_chars + WIDE * max(n_bytes - n_chars, 0)


def sizes(documents: Documents) -> list[int]:
    """Characters of each document; an estimate for a stored document whose size is not known yet."""
    chars = [len(text) + len(title) for text, title in zip(documents.texts, documents.titles, strict=True)]
    for number, identity in documents.by_id.ids.items():
        chars[number] = documents.by_id.chars.get(identity, ASSUMED_CHARS)
    return chars


def count_bytes(documents: Documents, sent: int | None = None) -> None:
    """Count the bytes of the documents in UTF-8, which takes milliseconds for millions of characters outside ASCII.

    Args:
        documents: their `utf8` is filled in.
        sent: bytes of the body that brought them, each once; if these are hardly more than the characters, the characters count.
    """
    chars = [len(text) + len(title) for text, title in zip(documents.texts, documents.titles, strict=True)]
    if sent is not None and sent <= (1 + FEW) * sum(chars):
        documents.utf8[:] = chars
        return
    documents.utf8[:] = [
        utf8_bytes(text) + utf8_bytes(title) for text, title in zip(documents.texts, documents.titles, strict=True)
    ]


def costs(documents: Documents) -> list[int]:
    """The time that each document takes, in characters of English."""
    return [cost(chars, n_bytes) for chars, n_bytes in zip(sizes(documents), _utf8(documents), strict=True)]


def _texts(documents: Documents) -> Texts:
    """The sizes of the texts that are prepared; of a document that the store has prepared otherwise, at least its characters."""
    chars, by_id = sizes(documents), documents.by_id
    least = {number: chars[number] for number, identity in by_id.ids.items() if identity in by_id.stale}
    return Texts(chars, [BYTES * max(n_bytes, least.get(number, 0)) for number, n_bytes in enumerate(_utf8(documents))])


def _utf8(documents: Documents) -> list[int]:
    """The bytes of each document in UTF-8; 0 for one that the store has prepared."""
    return documents.utf8 or [0] * len(documents)
