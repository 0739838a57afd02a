"""Computes first-stage BM25 runs, for queries that a collection's run leaves out and for collections without a run."""

import sys
from collections.abc import Iterable
from itertools import islice

import bm25s
import Stemmer

from training.data.collection import Collection
from training.data.types import CollectionError, Run


def candidate_pool(collection: Collection, split: str) -> list[str]:
    """The documents that a split may retrieve, sorted: those in its run, so that no other split's leak in; all without a run."""
    if not collection.has_run(split):
        return sorted(collection.documents)
    return sorted({document for scores in collection.run(split).values() for document in scores})


def first_stage_run(collection: Collection, split: str, depth: int = 100) -> Run:
    """The `depth` best of a split's queries in its run; without a run, of all documents for each query, by `bm25_run`.

    Raises CollectionError for a run that names no query of the split.
    """
    if collection.has_run(split):
        if listed := _listed(collection, split, depth):
            return listed
        raise CollectionError(f"{collection.path}: no query of split {split} is in its first-stage run")
    queries, pool = collection.split(split), candidate_pool(collection, split)
    print(
        f"{collection.name}: has no first-stage run of split {split}; BM25 retrieves {min(depth, len(pool))} of all {len(pool):,} "
        f"documents for each of {len(queries):,} queries (keyblock-candidates writes such a run once)",
        file=sys.stderr,
    )
    return bm25_run(collection, queries, pool, depth)


def bm25_run(collection: Collection, queries: Iterable[str], pool: list[str], depth: int = 100, *, stem: bool = True) -> Run:
    """Retrieve `depth` documents of `pool` for each query id (bm25s, Lucene's variant, k1 = 0.9, b = 0.4, stemmed, stopped).

    Without `stem` words are neither stemmed nor stopped. Raises CollectionError when no document has a word.
    """
    stemmer, stopped = (Stemmer.Stemmer("english"), "en") if stem else (None, None)
    texts = [f"{document.title} {document.text}" for document in map(collection.document, pool)]
    words = bm25s.tokenize(texts, stopwords=stopped, stemmer=stemmer, show_progress=False)
    if not any(words.ids):
        raise CollectionError(f"{collection.path}: none of the {len(pool)} documents to retrieve from has a word")
    index = bm25s.BM25(method="lucene", k1=0.9, b=0.4)
    index.index(words, show_progress=False)
    names = list(queries)
    query_texts = [collection.query(q) for q in names]
    tokens = bm25s.tokenize(query_texts, stopwords=stopped, stemmer=stemmer, return_ids=False, show_progress=False)
    found, scores = index.retrieve(tokens, corpus=pool, k=min(depth, len(pool)), show_progress=False)
    return {q: dict(zip(ids, map(float, row), strict=True)) for q, ids, row in zip(names, found, scores, strict=True)}


def complete_run(collection: Collection, split: str, depth: int = 100) -> Run:
    """The `depth` best of each query of a split; for those that its run leaves out, `bm25_run` retrieves from the same pool."""
    if not collection.has_run(split):
        return first_stage_run(collection, split, depth)
    run = _listed(collection, split, depth)
    missing = [q for q in collection.split(split) if q not in run]
    return run | (bm25_run(collection, missing, candidate_pool(collection, split), depth) if missing else {})


def _listed(collection: Collection, split: str, depth: int) -> Run:
    """The `depth` best of the split's queries in its run, which 'dev.small' shares with 'dev'."""
    run = collection.run(split)
    named = ((query, run[query]) for query in collection.split(split) if query in run)
    return {query: scores if len(scores) <= depth else dict(islice(scores.items(), depth)) for query, scores in named}
