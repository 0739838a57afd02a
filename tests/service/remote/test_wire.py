"""Sequences as arrays, and back."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from keyblock.bundle import load_bundle
from keyblock.packing import Packed
from service.remote.wire import NO_BLOCKS, named, read, written

SEQUENCES = st.builds(
    lambda ids, split, weight: Packed(np.asarray(ids, np.int32), min(split, len(ids)), NO_BLOCKS, weight=weight),
    st.lists(st.integers(0, 30_000), min_size=1, max_size=6),
    st.integers(0, 6),
    st.floats(0.25, 8, width=32),
)


def fields(documents: list[list[Packed]]) -> list[list[tuple[list[int], int, float]]]:
    return [[(one.ids.tolist(), one.split, one.weight) for one in document] for document in documents]


def test_two_documents_by_hand() -> None:
    """The first has the sequences [1 2 3] and [4], the second has none, the third [5 6]."""
    first = [Packed(np.array([1, 2, 3], np.int32), 1, NO_BLOCKS), Packed(np.array([4], np.int32), 0, NO_BLOCKS, weight=2.0)]
    sequences = written([first, [], [Packed(np.array([5, 6], np.int32), 2, NO_BLOCKS)]])
    assert sequences.ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert sequences.ends.tolist() == [3, 4, 6]
    assert sequences.splits.tolist() == [1, 0, 2]
    assert sequences.weights.tolist() == [1.0, 2.0, 1.0]
    assert sequences.counts.tolist() == [2, 0, 1]


@given(st.lists(st.lists(SEQUENCES, max_size=4), max_size=5))
def test_what_is_written_is_read(documents: list[list[Packed]]) -> None:
    assert fields(read(written(documents))) == fields(documents)


def test_a_bundle_is_named_by_where_it_is_and_all_that_is_in_it(bundle_path: Path) -> None:
    bundle = load_bundle(bundle_path)
    assert named(bundle) == named(load_bundle(bundle_path))
    assert named(bundle).path == str(bundle_path.absolute())
    other = replace(bundle, manifest=bundle.manifest.model_copy(update={"files": {}}))
    assert named(other).digest != named(bundle).digest
