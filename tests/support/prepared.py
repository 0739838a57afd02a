"""Prepared documents, compared."""

from dataclasses import fields

import numpy as np

from keyblock.prepared import PreparedDocument


def assert_equal(one: PreparedDocument, other: PreparedDocument) -> None:
    """The same arrays, of the same kind."""
    for field in fields(PreparedDocument):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        np.testing.assert_array_equal(mine, theirs, err_msg=field.name)
        assert (mine is None) == (theirs is None)
        assert mine is None or (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
