"""Documents by number, and documents by text."""

from pathlib import Path
from unittest.mock import patch

import pyarrow as pa

from bulk import sources
from bulk.prepared import columns_of
from bulk.schemas import DOCUMENTS, PREPARED, STORED_DOCUMENT, TEXT_DOCUMENT
from bulk.sources import StoredSource, TextSource
from bulk.tables import write_table
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
        found = StoredSource(where, [2, 1, 2]).read(column, texts=True)
    assert found.texts == ["B", "Tea is hot.", "The river flows.", "Ice is cold.", "B"]
    expected = pipeline.prepare_documents(list(found.texts))
    assert [one.token_ids.tolist() for one in found.prepared] == [one.token_ids.tolist() for one in expected]
    assert StoredSource(where, [2, 1, 2]).read(column, texts=False).texts == [""] * 5


def test_a_text_that_comes_often_is_prepared_once(pipeline: Pipeline) -> None:
    rows = [
        {"docid": str(n), "title": title, "text": text}
        for n, (title, text) in enumerate([("", "tea"), ("T", "tea"), ("", "tea"), (None, None)])
    ]
    with patch.object(pipeline, "prepare_documents", wraps=pipeline.prepare_documents) as prepare:
        found = TextSource(pipeline).read(pa.array(rows, TEXT_DOCUMENT), texts=True)
    assert prepare.call_args.args == (["tea", "tea", ""], ["", "T", ""])
    assert found.prepared[0] is found.prepared[2]
    assert [len(one.title_ids) for one in found.prepared] == [0, 1, 0, 0]
    assert found.texts == ["tea", "tea", "tea", ""]
