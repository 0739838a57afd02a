"""Prepares documents and chooses blocks of them, in threads beside the event loop, a slice of documents at a time.

What a text costs is estimated before it is prepared. A million characters of English prose take 0.12 s and 6 MB, of one-letter
words and marks up to 1.4 s and 80 MB, of Chinese 4.3 s and 60 MB (lab/notes/faults.md). So time is counted by
characters and, outside ASCII, by their bytes of UTF-8, and memory by the worst kind: an estimate that is too high costs a little
waiting, one that is too low takes from others.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument, PreparedQuery, content_digest
from service.call import ASSUMED_CHARS, Documents
from service.lru import DocumentCache
from service.pace import Pace
from service.ranking.slicing import Texts, Threads, Watch
from service.telemetry.metrics import Metrics

WIDE = 12  # characters of English that take as much time as a byte of UTF-8 beyond one a character
BYTES = 80  # of memory while a text is prepared, for a byte of UTF-8
COLD_SECONDS = 3e-7  # for a character of English, until it is measured
PIECE = 1 << 18  # characters that are counted at once

T = TypeVar("T")


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
        beside = Texts(chars, list(map(footprint, utf8)))
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


def footprint(n_bytes: int) -> int:
    """The most bytes of memory that a text takes while it is prepared."""
    return BYTES * n_bytes


def sizes(documents: Documents) -> list[int]:
    """Characters of each document; an estimate for a stored document whose size is not known yet."""
    chars = [len(text) + len(title) for text, title in zip(documents.texts, documents.titles, strict=True)]
    for number, identity in documents.by_id.ids.items():
        chars[number] = documents.by_id.chars.get(identity, ASSUMED_CHARS)
    return chars


def count_bytes(documents: Documents) -> None:
    """Count the bytes of the documents in UTF-8, which takes milliseconds for millions of characters outside ASCII."""
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
    return Texts(chars, [footprint(max(n_bytes, least.get(number, 0))) for number, n_bytes in enumerate(_utf8(documents))])


def _utf8(documents: Documents) -> list[int]:
    """The bytes of each document in UTF-8; 0 for one that the store has prepared."""
    return documents.utf8 or [0] * len(documents)
