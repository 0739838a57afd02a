"""A first-stage BM25 run of our own, for queries that a collection's run leaves out."""

from collections.abc import Iterable

import bm25s
import Stemmer

from training.collections.collection import Collection
from training.collections.types import CollectionError, Run


def candidate_pool(collection: Collection, split: str) -> list[str]:
    """The documents that a split may retrieve: those its own run names, so that no other split's documents leak in."""
    return sorted({document for scores in collection.run(split).values() for document in scores})


def bm25_run(collection: Collection, queries: Iterable[str], pool: list[str], depth: int = 100) -> Run:
    """Retrieve `depth` documents of `pool` for each query id (bm25s, Lucene's variant, k1 = 0.9, b = 0.4, stemmed, stopped).

    Raises CollectionError when no document has a word.
    """
    stemmer = Stemmer.Stemmer("english")
    texts = [f"{document.title} {document.text}" for document in map(collection.document, pool)]
    words = bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False)
    if not any(words.ids):
        raise CollectionError(f"{collection.path}: none of the {len(pool)} documents to retrieve from has a word")
    index = bm25s.BM25(method="lucene", k1=0.9, b=0.4)
    index.index(words, show_progress=False)
    names = list(queries)
    asked = [collection.query(q) for q in names]
    tokens = bm25s.tokenize(asked, stopwords="en", stemmer=stemmer, return_ids=False, show_progress=False)
    found, scores = index.retrieve(tokens, corpus=pool, k=min(depth, len(pool)), show_progress=False)
    return {q: dict(zip(ids, map(float, row), strict=True)) for q, ids, row in zip(names, found, scores, strict=True)}


def complete_run(collection: Collection, split: str, depth: int = 100) -> Run:
    """The collection's run of a split, with queries it leaves out retrieved by `bm25_run` from the same pool."""
    given = collection.run(split)
    missing = [q for q in collection.split(split) if q not in given]
    return given | (bm25_run(collection, missing, candidate_pool(collection, split), depth) if missing else {})
