"""What is known of a query and a document before they meet."""

import dataclasses

import numpy as np

from keyblock.pipeline import Pipeline


def test_the_size_in_memory_counts_every_array(pipeline: Pipeline) -> None:
    document = pipeline.prepare_document("The river floods the bridge. The city is old.", title="City")
    arrays = [getattr(document, name) for name in document.__slots__ if name != "vectors" or document.vectors is not None]
    assert all(isinstance(array, np.ndarray) for array in arrays)
    assert document.nbytes == sum(array.size * array.itemsize for array in arrays) > 0


def test_a_document_with_vectors_is_the_same_but_for_these(pipeline: Pipeline) -> None:
    document = pipeline.prepare_document("The river floods the bridge. The city is old.", title="City")
    vectors = np.ones((document.n_blocks, 3), np.int8)
    given, due = document.with_vectors(vectors), dataclasses.replace(document, vectors=vectors)
    assert [getattr(given, name) is getattr(due, name) for name in document.__slots__] == [True] * len(document.__slots__)
