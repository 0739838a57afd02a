"""From texts to model inputs, in threads beside the event loop, a slice of documents at a time.

A request has a few slices in hand at once and no more, so a large one leaves room for others, and one whose client has gone
stops at the next slice. The tokenizer gives the interpreter lock back while it works; the rest of a slice is short.

A learned selector takes two rounds: `shortlists` says what the model is to score, and with the logits of that `selected` goes on.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from keyblock.pipeline import Pipeline, Shortlist
from keyblock.prepared import PreparedDocument, PreparedQuery
from service.cache import DocumentCache, content_key
from service.call import Documents
from service.metrics import Metrics
from service.ranking import Candidate, candidate

SLICE_DOCUMENTS = 32
SLICE_CHARS = 200_000
SLICES_IN_HAND = 2  # one in the tokenizer, one in Python

T = TypeVar("T")


class Shortlisted(NamedTuple):
    """A document between the two rounds of a learned selector."""

    document: PreparedDocument
    shortlist: Shortlist


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

        def work(numbers: range) -> list[Candidate]:
            prepared = self._prepared(documents, numbers)
            return [candidate(document, self._pipeline.select(query, document, budget)) for document in prepared]

        return await self._in_slices(_sizes(documents), work)

    async def shortlists(self, query: PreparedQuery, documents: Documents, budget: int) -> list[Shortlisted]:
        """Prepare the documents and what a learned selector asks the model of each, in the order given."""

        def work(numbers: range) -> list[Shortlisted]:
            prepared = self._prepared(documents, numbers)
            return [Shortlisted(document, self._pipeline.shortlist(query, document, budget)) for document in prepared]

        return await self._in_slices(_sizes(documents), work)

    async def selected(
        self, query: PreparedQuery, shortlisted: Sequence[Shortlisted], logits: NDArray[np.float32], budget: int
    ) -> list[Candidate]:
        """The documents with the blocks that a learned selector chose.

        Args:
            query: the query.
            shortlisted: from `shortlists`.
            logits: shape (n_sequences,), of all their sequences.
            budget: tokens a sequence may have.
        """
        ends = np.cumsum([len(shortlist.sequences) for _, shortlist in shortlisted])

        def work(numbers: range) -> list[Candidate]:
            return [self._chosen(query, *shortlisted[n], logits[: ends[n]], budget) for n in numbers]

        # all that is left to do goes by the document's tokens, and is quick
        return await self._in_slices([len(document.token_ids) for document, _ in shortlisted], work)

    def _chosen(
        self, query: PreparedQuery, document: PreparedDocument, shortlist: Shortlist, logits: NDArray[np.float32], budget: int
    ) -> Candidate:
        """A candidate whose shortlist's logits are the last ones of `logits`."""
        asked = shortlist.sequences
        selection = self._pipeline.select(query, document, budget, (shortlist, logits[len(logits) - len(asked) :]))
        return candidate(document, selection, sum(len(packed.ids) for packed in asked))

    async def _in_slices(self, sizes: Sequence[int], work: Callable[[range], list[T]]) -> list[T]:
        """What `work` makes of all documents, in their order; `sizes` as for `slices`."""
        loop = asyncio.get_running_loop()
        found: dict[int, list[T]] = {}
        todo = slices(sizes)

        async def one_after_the_other() -> None:
            for numbers in todo:
                found[numbers.start] = await loop.run_in_executor(self._pool, work, numbers)

        async with asyncio.TaskGroup() as group:
            for _ in range(SLICES_IN_HAND):
                group.create_task(one_after_the_other())
        return [made for start in sorted(found) for made in found[start]]

    def _prepared(self, documents: Documents, numbers: range) -> list[PreparedDocument]:
        """Each document of the slice from the cache, or prepared and cached."""
        texts, titles = (all_of[numbers.start : numbers.stop] for all_of in (documents.texts, documents.titles))
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


def _sizes(documents: Documents) -> list[int]:
    """Characters of each document."""
    return [len(text) + len(title) for text, title in zip(documents.texts, documents.titles, strict=True)]
