"""The tables' columns."""

import pytest

from bulk.tables import LISTS, STORED_LISTS, rankings_schema


@pytest.mark.parametrize(("blocks", "spans"), [(False, False), (True, False), (False, True), (True, True)])
def test_places_are_written_if_requested(blocks: bool, spans: bool) -> None:
    names = rankings_schema(blocks=blocks, spans=spans).names
    assert names == ["qid", "docid", "rank", "score", "scored_by", "fused_score", *["blocks"] * blocks, *["spans"] * spans]


def test_lists_differ_in_how_a_document_is_known() -> None:
    known = [[field.name for field in schema.field("documents").type.value_type] for schema in (LISTS, STORED_LISTS)]
    assert known == [["docid", "title", "text", "score"], ["docid", "number", "score"]]
