"""Documents by number, and documents by text."""

from pathlib import Path
from unittest.mock import patch

import pyarrow as pa

from bulk import sources
from bulk.sources import stored_source, text_source
from bulk.tables import DOCUMENTS, PREPARED, STORED_DOCUMENT, TEXT_DOCUMENT, columns_of, write_table
from keyblock.pipeline import Pipeline
from tests.bulk.jobs import layout

SHARDS = [["Tea is hot.", "Ice is cold."], ["The river flows."], ["A", "B"]]


def test_stored_documents_are_found_in_whatever_shard_they_are(tmp_path: Path, pipeline: Pipeline) -> None:
    where = layout(tmp_path)
    for number, texts in enumerate(SHARDS):
        write_table(where.documents(number), {"title": [""] * len(texts), "text": texts}, DOCUMENTS)
        write_table(where.prepared(number), columns_of(pipeline.prepare_documents(texts)), PREPARED)
    column = pa.array([{"docid": "x", "number": number, "score": None} for number in (4, 0, 2, 1, 4)], STORED_DOCUMENT)
    with patch.object(sources, "OPEN_SHARDS", 1):
        prepared, texts = stored_source(where, [2, 1, 2])(column, True)
    assert texts == ["B", "Tea is hot.", "The river flows.", "Ice is cold.", "B"]
    expected = pipeline.prepare_documents(list(texts))
    assert [one.token_ids.tolist() for one in prepared] == [one.token_ids.tolist() for one in expected]
    assert stored_source(where, [2, 1, 2])(column, False)[1] == [""] * 5


def test_a_text_that_comes_often_is_prepared_once(pipeline: Pipeline) -> None:
    rows = [
        {"docid": str(n), "title": title, "text": text}
        for n, (title, text) in enumerate([("", "tea"), ("T", "tea"), ("", "tea"), (None, None)])
    ]
    with patch.object(pipeline, "prepare_documents", wraps=pipeline.prepare_documents) as prepare:
        prepared, texts = text_source(pipeline)(pa.array(rows, TEXT_DOCUMENT), True)
    assert prepare.call_args.args == (["tea", "tea", ""], ["", "T", ""])
    assert prepared[0] is prepared[2]
    assert [len(one.title_ids) for one in prepared] == [0, 1, 0, 0]
    assert texts == ["tea", "tea", "tea", ""]
