"""Re-ranks in Spark: candidate lists and rankings are data frames.

A row of the frame is a query with its candidates; `lists_of` makes such rows from a frame of pairs. Each Spark task passes its rows
to `bulk.scorer.BundleScorer` as Arrow record batches, with `mapInArrow`. The bundle's directory must be on every worker.
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
    """Rank each list. The rankings have a row for each document, best first, with the columns of `bulk.tables.rankings_schema`.

    Args:
        lists: columns qid, query and documents. A document is a struct of docid, title, text and score (first-stage, or null).
        bundle: the bundle's directory.
        asking: fields of `bulk.options.Asking`.
    """
    answer_options = Asking(**asking)
    columns = "qid string, docid string, rank int, score double, scored_by string, fused_score double"
    schema = (
        columns + (f", blocks {_PLACES}" if answer_options.blocks else "") + (f", spans {_PLACES}" if answer_options.spans else "")
    )
    return lists.mapInArrow(partial(_rank, bundle=bundle, asking=answer_options), schema)


def lists_of(pairs: "DataFrame") -> "DataFrame":
    """Group pairs into lists, best score first. The rows have qid, query, docid, title, text and score."""
    from pyspark.sql import functions

    document = functions.struct(*(functions.col(name) for name in ("docid", "title", "text", "score")))
    collected = pairs.groupBy("qid").agg(functions.first("query").alias("query"), functions.collect_list(document).alias("found"))
    best_first = "array_sort(found, (a, b) -> CASE WHEN a.score > b.score THEN -1 WHEN a.score < b.score THEN 1 ELSE 0 END)"
    return collected.selectExpr("qid", "query", f"{best_first} AS documents")


def _rank(batches: Iterable[pa.RecordBatch], bundle: str, asking: Asking) -> Iterator[pa.RecordBatch]:
    """Rank the record batches of a task."""
    scorer = _scorer(bundle, asking)
    for batch in batches:
        yield scorer(batch)


@lru_cache(maxsize=1)
def _scorer(bundle: str, asking: Asking) -> BundleScorer:
    """The scorer of a Spark Python process, which serves many tasks."""
    loaded = load_bundle(Path(bundle))
    return BundleScorer(loaded, open_model(loaded, asking.provider, asking.threads, asking.precision), asking)
