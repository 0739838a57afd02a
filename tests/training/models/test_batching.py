"""Padding of packed sequences, against rows written out by hand."""

import numpy as np
import torch

from keyblock.packing import Packed
from training.model.ranker_module import Inputs, pad

LONG = Packed(np.asarray([101, 7, 102, 8, 9, 102], np.int32), 3, np.asarray([0], np.intp))
SHORT = Packed(np.asarray([101, 7, 102, 102], np.int32), 3, np.asarray([], np.intp))


def test_rows_by_hand() -> None:
    ids, types, mask = pad([LONG, SHORT], pad_id=5)
    assert ids.tolist() == [[101, 7, 102, 8, 9, 102], [101, 7, 102, 102, 5, 5]]
    assert types.tolist() == [[0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 0, 0]]
    assert mask.tolist() == [[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]]
    assert {tensor.dtype for tensor in (ids, types, mask)} == {torch.int64}


def test_a_tokenizer_without_segment_types() -> None:
    assert pad([LONG], pad_id=1, document_type=0).token_type_ids.tolist() == [[0] * 6]


def test_to_a_device_keeps_names() -> None:
    moved = pad([LONG], 0).to(torch.device("meta"))
    assert isinstance(moved, Inputs)
    assert moved.attention_mask.device.type == "meta"
