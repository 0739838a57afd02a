"""From texts to model inputs, in threads beside the event loop, a slice of documents at a time.

A request has a few slices in hand at once and no more, so a large one leaves room for others, and one whose client has gone
stops at the next slice. The tokenizer gives the interpreter lock back while it works; the rest of a slice is short.
"""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument, PreparedQuery
from service.cache import DocumentCache, content_key
from service.call import Documents
from service.metrics import Metrics
from service.ranking import Candidate, candidate

SLICE_DOCUMENTS = 32
SLICE_CHARS = 200_000
SLICES_IN_HAND = 2  # one in the tokenizer, one in Python


def slices(sizes: Sequence[int]) -> Iterator[range]:
    """Consecutive ranges of documents of at most SLICE_DOCUMENTS and, beyond the first of each, SLICE_CHARS characters."""
    start = chars = 0
    for number, size in enumerate(sizes):
        if number > start and (number - start == SLICE_DOCUMENTS or chars + size > SLICE_CHARS):
            yield range(start, number)
            start, chars = number, 0
        chars += size
    if start < len(sizes):
        yield range(start, len(sizes))


class Preparer:
    """Prepares the candidates of a request.

    Args:
        pipeline: the bundle's.
        cache: documents seen before.
        pool: threads to work in.
        metrics: counts the cache's hits.
    """

    def __init__(self, pipeline: Pipeline, cache: DocumentCache, pool: ThreadPoolExecutor, metrics: Metrics) -> None:
        self._pipeline = pipeline
        self._cache = cache
        self._pool = pool
        self._metrics = metrics

    async def query(self, text: str) -> PreparedQuery:
        """Prepare the query."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._pipeline.prepare_query, text)

    async def candidates(self, query: PreparedQuery, documents: Documents, budget: int) -> list[Candidate]:
        """Prepare the documents and let each meet the query, in the order given."""
        loop = asyncio.get_running_loop()
        found: dict[int, list[Candidate]] = {}
        todo = slices([len(text) + len(title) for text, title in zip(documents.texts, documents.titles, strict=True)])

        async def work() -> None:
            for numbers in todo:
                found[numbers.start] = await loop.run_in_executor(self._pool, self._slice, query, documents, numbers, budget)

        async with asyncio.TaskGroup() as group:
            for _ in range(SLICES_IN_HAND):
                group.create_task(work())
        return [candidate for start in sorted(found) for candidate in found[start]]

    def _slice(self, query: PreparedQuery, documents: Documents, numbers: range, budget: int) -> list[Candidate]:
        texts = documents.texts[numbers.start : numbers.stop]
        titles = documents.titles[numbers.start : numbers.stop]
        prepared = self._prepared(texts, titles)
        return [candidate(document, self._pipeline.select(query, document, budget)) for document in prepared]

    def _prepared(self, texts: list[str], titles: list[str]) -> list[PreparedDocument]:
        """Each document from the cache, or prepared and cached."""
        if not self._cache.capacity:
            return self._pipeline.prepare_documents(texts, titles)
        keys = [content_key(text, title) for text, title in zip(texts, titles, strict=True)]
        known = {key: document for key in dict.fromkeys(keys) if (document := self._cache.get(key)) is not None}
        new = {key: number for number, key in enumerate(keys) if key not in known}
        if new:
            fresh = self._pipeline.prepare_documents([texts[n] for n in new.values()], [titles[n] for n in new.values()])
            for key, document in zip(new, fresh, strict=True):
                self._cache.put(key, document)
                known[key] = document
        self._metrics.add("cache_lookups", len(keys) - len(new), outcome="hit")
        self._metrics.add("cache_lookups", len(new), outcome="miss")
        self._metrics.set("cache_bytes", self._cache.nbytes)
        return [known[key] for key in keys]
