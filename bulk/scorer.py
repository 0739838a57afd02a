"""The scorer that every engine calls: it turns candidate lists into rankings, both as Arrow record batches.

Its documents were prepared in an earlier stage and are found by number, or are prepared from the texts in a list.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, TypeVar

import pyarrow as pa

from bulk.errors import BulkError
from bulk.options import Asking
from bulk.tables import PreparedTable, map_table, rankings_schema
from bulk.work import Layout
from keyblock.bundle import Bundle
from keyblock.fusion import FirstStage
from keyblock.meaning import Understanding
from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument
from keyblock.ranking.answer import Answered
from keyblock.ranking.flow import ranking
from keyblock.ranking.request import AnswerOptions, RankRequest, Texts
from keyblock.scoring import Model, drive_all

OPEN_SHARDS = 256  # mapped at once: each is an open file

T = TypeVar("T")
Documents = tuple[Sequence[PreparedDocument], Sequence[str]]
"""The documents of a record batch of lists, list after list: prepared, and their texts ("" for each if nobody wants them)."""
Source = Callable[[pa.StructArray, bool], Documents]
"""Provides the documents of a column, which holds their texts or their numbers, and their texts where that is said."""


class BundleScorer:
    """Ranks each list of a record batch as POST /rerank does; the sequences of all of them go through the model together.

    Args:
        bundle: how scores are computed.
        model: the bundle's loaded model.
        asking: what is written for each list.
        source: provides the documents; by default the lists hold their texts.

    Attributes:
        schema: schema of the rankings.
    """

    def __init__(self, bundle: Bundle, model: Model, asking: Asking, source: Source | None = None) -> None:
        self.schema = rankings_schema(blocks=asking.blocks, spans=asking.spans)
        self._pipeline, self._model = bundle.pipeline, model
        self._source = source or text_source(bundle.pipeline, understand=asking.understand)
        self._answer_options = AnswerOptions(asking.spans, asking.span_threshold, top_n=asking.top_n)
        self._fusion = asking.fusion
        self._max_tokens = asking.max_tokens_per_doc

    def __call__(self, lists: pa.RecordBatch) -> pa.RecordBatch:
        """Rank the lists of a record batch.

        Args:
            lists: one row per list, with documents in the form that the source reads; see `bulk.tables.LISTS`.

        Returns:
            One row per ranked document, list after list, best first; see `bulk.tables.rankings_schema`.

        Raises ValueError if a fusion needs first-stage scores and a list has none, and the exceptions of the model.
        """
        qids, documents = lists.column("qid").to_pylist(), lists.column("documents")
        names = _split_by_list(documents.flatten().field("docid").to_pylist(), documents)
        requests, prepared = self._requests(lists.column("query").to_pylist(), documents)
        flows = [ranking(request, self._pipeline) for request in requests]
        answers = drive_all(flows, prepared, self._pipeline.aggregator, self._model)
        rows = [row for one in zip(qids, names, answers, strict=True) for row in self._rows(*one)]
        return pa.RecordBatch.from_pylist(rows, schema=self.schema)

    def _requests(self, queries: Sequence[str], lists: pa.ListArray) -> tuple[list[RankRequest], list[Sequence[PreparedDocument]]]:
        """A request for each list, and its prepared documents."""
        column = lists.flatten()
        found, found_texts = self._source(column, self._answer_options.reads_texts)
        parts = (_split_by_list(values, lists) for values in (found, found_texts, column.field("score").to_pylist()))
        requests, documents = [], []
        for text, prepared, texts, scores in zip(queries, *parts, strict=True):
            first_stage = FirstStage.read(None if None in scores else scores, self._fusion, len(scores))
            given = RankRequest(text, Texts(texts), self._max_tokens, asked=self._answer_options, first_stage=first_stage)
            requests.append(given)
            documents.append(prepared)
        return requests, documents

    def _rows(self, qid: str, names: Sequence[str], answer: Answered) -> Iterator[dict[str, Any]]:
        """A list's ranking as rows of `schema`."""
        ranking = answer.ranking
        for place, number in enumerate(ranking.order, 1):
            row: dict[str, Any] = {"qid": qid, "docid": names[number], "rank": place, "score": float(ranking.scores[number])}
            row |= {"scored_by": ranking.scored_by[number].value, "fused_score": ranking.fused.get(number)}
            if "blocks" in self.schema.names:
                row["blocks"] = [block._asdict() for block in ranking.blocks[number]]
            if "spans" in self.schema.names:
                row["spans"] = [span._asdict() for span in answer.spans.get(number, ())]
            yield row


def _split_by_list(values: Sequence[T], lists: pa.ListArray) -> Iterator[Sequence[T]]:
    """Split values of all documents by list."""
    end = 0
    for count in lists.value_lengths().to_pylist():
        yield values[end : (end := end + count)]


def understanding_of(pipeline: Pipeline) -> Understanding:
    """What understands documents. Raises BulkError if the bundle has no sentence encoder for it."""
    if pipeline.understanding is None:
        raise BulkError("--understand needs a bundle with a sentence encoder for stored documents: see keyblock-encoder --meaning")
    return pipeline.understanding


def prepared(pipeline: Pipeline, texts: Sequence[str], titles: Sequence[str], *, understand: bool) -> list[PreparedDocument]:
    """The documents, understood if that is asked. Raises BulkError as `understanding_of`."""
    made = pipeline.prepare_documents(texts, titles)
    return [understanding_of(pipeline).read(one) for one in made] if understand else made


def text_source(pipeline: Pipeline, *, understand: bool = False) -> Source:
    """Prepares documents of `bulk.tables.TEXT_DOCUMENT`; each distinct document of a record batch once."""

    def read(column: pa.StructArray, texts: bool) -> Documents:
        document_texts = [text or "" for text in column.field("text").to_pylist()]
        keys = list(zip(document_texts, (title or "" for title in column.field("title").to_pylist()), strict=True))
        distinct = list(dict.fromkeys(keys))
        made = prepared(pipeline, [text for text, _ in distinct], [title for _, title in distinct], understand=understand)
        known = dict(zip(distinct, made, strict=True))
        return [known[key] for key in keys], document_texts if texts else [""] * len(keys)

    return read


def stored_source(layout: Layout, counts: Sequence[int]) -> Source:
    """Maps documents of `bulk.tables.STORED_DOCUMENT` that the job's stage `Prepare` wrote, so many in each shard."""
    ends = list(accumulate(counts))
    starts = [0, *ends]
    tables = lru_cache(OPEN_SHARDS)(lambda shard: PreparedTable(map_table(layout.prepared(shard))))
    texts_of = lru_cache(OPEN_SHARDS)(lambda shard: map_table(layout.documents(shard)).column("text"))

    def read(column: pa.StructArray, texts: bool) -> Documents:
        numbers = column.field("number").to_pylist()
        places = [(shard, number - starts[shard]) for number in numbers for shard in (bisect_right(ends, number),)]
        found = [tables(shard)[row] for shard, row in places]
        return found, [texts_of(shard)[row].as_py() for shard, row in places] if texts else [""] * len(places)

    return read
