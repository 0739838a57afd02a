"""What is known of a query and a document before they meet."""

import numpy as np

from keyblock.pipeline import Pipeline


def test_the_size_in_memory_counts_every_array(pipeline: Pipeline) -> None:
    document = pipeline.prepare_document("The river floods the bridge. The city is old.", title="City")
    arrays = [getattr(document, name) for name in document.__slots__ if name != "vectors" or document.vectors is not None]
    assert all(isinstance(array, np.ndarray) for array in arrays)
    assert document.nbytes == sum(array.size * array.itemsize for array in arrays) > 0
