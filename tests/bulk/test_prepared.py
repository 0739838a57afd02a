"""Prepared documents as Arrow columns."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bulk.tables import PREPARED, PreparedTable, columns_of, map_table, write_table
from keyblock.bundle import Bundle, load_bundle
from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument
from tests.conftest import ROOT

ARRAYS = ("token_ids", "bounds", "starts", "ends", "terms", "term_bounds", "title_ids", "vectors")


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return load_bundle(ROOT / "models" / "default")


def same(one: PreparedDocument, other: PreparedDocument) -> bool:
    pairs = [(getattr(one, name), getattr(other, name)) for name in ARRAYS]
    return all((a is None and b is None) or (a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b)) for a, b in pairs)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(
        st.sampled_from(["", "Tea is hot. ", "Ice is cold, and the river flows. " * 30, "多瑙河。", "\U0001f600"]), max_size=5
    )
)
def test_what_is_written_is_read(bundle: Bundle, tmp_path: Path, texts: list[str]) -> None:
    documents = bundle.pipeline.prepare_documents(texts, [text[:8] for text in texts])
    write_table(tmp_path / "prepared.arrow", columns_of(documents), PREPARED)
    table = PreparedTable(map_table(tmp_path / "prepared.arrow"))
    assert len(table) == len(texts)
    assert all(same(table[number], one) for number, one in enumerate(documents))


def test_without_an_encoder_there_are_no_vectors(pipeline: Pipeline, tmp_path: Path) -> None:
    documents = pipeline.prepare_documents(["Tea is hot.", ""])
    write_table(tmp_path / "prepared.arrow", columns_of(documents), PREPARED)
    table = PreparedTable(map_table(tmp_path / "prepared.arrow"))
    assert [table[number].vectors for number in range(2)] == [None, None]
    assert all(same(table[number], one) for number, one in enumerate(documents))
    query = pipeline.prepare_query("hot tea")
    assert (
        pipeline.select(query, table[0]).sequences[0].ids.tolist() == pipeline.select(query, documents[0]).sequences[0].ids.tolist()
    )
