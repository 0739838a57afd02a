"""The scorer that every engine calls: it turns candidate lists into rankings, both as Arrow record batches.

Its documents were prepared in an earlier stage, and are found by their numbers.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, TypeVar

import pyarrow as pa

from bulk.options import Asking
from bulk.tables import PreparedTable, map_table, rankings_schema
from bulk.work import Layout
from keyblock.bundle import Bundle
from keyblock.fusion import FirstStage
from keyblock.prepared import PreparedDocument
from keyblock.ranking.answer import Answered
from keyblock.ranking.flow import ranking
from keyblock.ranking.request import AnswerOptions, RankRequest, Texts
from keyblock.scoring import Model, drive_all

OPEN_SHARDS = 256  # mapped at once: each is an open file

T = TypeVar("T")


class StoredDocuments:
    """The documents that the job's stage `Prepare` wrote, by number. Files are mapped when a document of theirs is asked for.

    Args:
        layout: where the files are.
        counts: documents in each file.
    """

    def __init__(self, layout: Layout, counts: Sequence[int]) -> None:
        self._starts = [0, *accumulate(counts)]
        self._prepared = lru_cache(OPEN_SHARDS)(lambda shard: PreparedTable(map_table(layout.prepared(shard))))
        self._texts = lru_cache(OPEN_SHARDS)(lambda shard: map_table(layout.documents(shard)).column("text"))

    def prepared(self, number: int) -> PreparedDocument:
        """A document, prepared."""
        shard, row = self._place(number)
        return self._prepared(shard)[row]

    def text(self, number: int) -> str:
        """A document's text."""
        shard, row = self._place(number)
        return str(self._texts(shard)[row])

    def _place(self, number: int) -> tuple[int, int]:
        shard = bisect_right(self._starts, number) - 1
        return shard, number - self._starts[shard]


class BundleScorer:
    """Ranks each list of a record batch as POST /rerank does; the sequences of all of them go through the model together.

    Args:
        bundle: how scores are computed.
        model: the bundle's loaded model.
        asking: what is written for each list.
        documents: of all lists.

    Attributes:
        schema: schema of the rankings.
    """

    def __init__(self, bundle: Bundle, model: Model, asking: Asking, documents: StoredDocuments) -> None:
        self.schema = rankings_schema(blocks=asking.blocks, spans=asking.spans)
        self._pipeline, self._model = bundle.pipeline, model
        self._documents = documents
        self._answer_options = AnswerOptions(asking.spans, asking.span_threshold, top_n=asking.top_n)
        self._fusion = asking.fusion
        self._max_tokens = asking.max_tokens_per_doc

    def __call__(self, lists: pa.RecordBatch) -> pa.RecordBatch:
        """Rank the lists of a record batch.

        Args:
            lists: one row per list; see `bulk.tables.LISTS`.

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
        numbers = column.field("number").to_pylist()
        found = [self._documents.prepared(number) for number in numbers]
        found_texts = [self._documents.text(number) if self._answer_options.reads_texts else "" for number in numbers]
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
