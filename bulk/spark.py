"""In Spark: candidate lists are a data frame, and so are the rankings.

A row of the frame is a query with its candidates; `lists_of` makes such rows of a frame of pairs. Each Spark task hands its rows to
`bulk.scorer.BundleScorer` as Arrow record batches, by `mapInArrow`. The bundle's directory must be on every worker.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bulk.options import Asking
from bulk.scorer import BundleScorer
from keyblock.bundle import load_bundle
from keyblock.runtime.model import open_model

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_PLACES = "array<struct<start: int, end: int, score: double>>"


def rank(lists: "DataFrame", bundle: str, **asking: Any) -> "DataFrame":
    """Rank each list; a row for each document, best first, as `bulk.schemas.rankings_schema` has it.

    Args:
        lists: with qid, query, and documents: an array of structs with docid, title, text and score (the first stage's, or null).
        bundle: its directory.
        asking: fields of `bulk.options.Asking`.
    """
    asked = Asking(**asking)
    columns = "qid string, docid string, rank int, score double, scored_by string, fused_score double"
    schema = columns + (f", blocks {_PLACES}" if asked.blocks else "") + (f", spans {_PLACES}" if asked.spans else "")
    return lists.mapInArrow(partial(_rank, bundle=bundle, asked=asked), schema)


def lists_of(pairs: "DataFrame") -> "DataFrame":
    """Lists of pairs: rows with qid, query, docid, title, text and score, the best score first."""
    from pyspark.sql import functions

    document = functions.struct(*(functions.col(name) for name in ("docid", "title", "text", "score")))
    collected = pairs.groupBy("qid").agg(functions.first("query").alias("query"), functions.collect_list(document).alias("found"))
    best_first = "array_sort(found, (a, b) -> CASE WHEN a.score > b.score THEN -1 WHEN a.score < b.score THEN 1 ELSE 0 END)"
    return collected.selectExpr("qid", "query", f"{best_first} AS documents")


def _rank(batches: Iterable[pa.RecordBatch], bundle: str, asked: Asking) -> Iterator[pa.RecordBatch]:
    """What a task does."""
    scorer = _scorer(bundle, asked)
    for batch in batches:
        yield scorer(batch)


@lru_cache(maxsize=1)
def _scorer(bundle: str, asked: Asking) -> BundleScorer:
    """One in each of Spark's Python processes, which serve many tasks."""
    loaded = load_bundle(Path(bundle))
    return BundleScorer(loaded, open_model(loaded, asked.provider, asked.threads, asked.precision), asked)
