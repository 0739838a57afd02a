"""The encoder "sentence" on a graph of hand-made weights: its vectors by hand, and what is refused."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from keyblock.encoders import ENCODERS, Texts
from keyblock.sentence_vectors import BATCH_TOKENS, SentenceGraph, _batches

FIRST, LAST = 5, 6
TABLE = np.asarray([[0, 0], [1, 0], [0, 1], [3, 4], [9, 9], [0, 0], [0, 0]], np.float32)  # of tokens 0 to 6


def write_graph(path: Path, longest: int = 8, **metadata: str) -> Path:
    """The sum of the tokens' rows, where the mask is 1."""
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
        helper.make_node("Cast", ["attention_mask"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["real", "axis"], ["column"]),
        helper.make_node("Mul", ["rows", "column"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "summed"], ["vectors"], keepdims=0),
    ]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["b", "l"]) for name in ("input_ids", "attention_mask")]
    given = {"table": TABLE, "axis": np.asarray([2]), "summed": np.asarray([1])}
    graph = helper.make_graph(
        nodes,
        "sums",
        inputs,
        [helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["b", 2])],
        [numpy_helper.from_array(value, name) for name, value in given.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    known = {"vocabulary_size": "7", "first": str(FIRST), "last": str(LAST), "longest": str(longest)} | metadata
    helper.set_model_props(model, known)
    onnx.save(model, str(path))
    return path


def texts(ids: list[int], *bounds: tuple[int, int]) -> Texts:
    return Texts(np.asarray(ids, np.int32), np.asarray(bounds, np.int32).reshape(-1, 2))


def test_vectors_by_hand(tmp_path: Path) -> None:
    """Tokens 1 and 2 make (1, 1) of length sqrt 2, token 3 (3, 4) of length 5; an empty block has none."""
    encoder = SentenceGraph(write_graph(tmp_path / "graph.onnx"))
    (found,) = encoder.encode([texts([1, 2, 3], (0, 2), (2, 3), (3, 3), (0, 3))])
    expected = [[1 / 2**0.5, 1 / 2**0.5], [0.6, 0.8], [0, 0], [4 / 41**0.5, 5 / 41**0.5]]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert (encoder.dimensions, encoder.vocabulary_size) == (2, 7)


def test_what_is_longer_than_the_encoder_reads_is_cut(tmp_path: Path) -> None:
    """Of longest 4 two are the special tokens: the third token counts nothing."""
    encoder = SentenceGraph(write_graph(tmp_path / "graph.onnx", longest=4))
    (found,) = encoder.encode([texts([1, 1, 2], (0, 3))])
    assert found.tolist() == [[1, 0]]


def test_a_document_is_encoded_apart_from_any_other(tmp_path: Path) -> None:
    encoder, rng = SentenceGraph(write_graph(tmp_path / "graph.onnx")), np.random.default_rng(0)
    several: list[Texts] = [texts(rng.integers(1, 5, 40).tolist(), (0, 3), (3, 9), (9, 11), (11, 40)) for _ in range(4)]
    together = encoder.encode(several)
    for one, own in zip(several, together, strict=True):
        np.testing.assert_array_equal(encoder.encode([one])[0], own)
    assert encoder.encode([texts([])])[0].shape == (0, 2)


def test_work_is_given_up_between_batches(tmp_path: Path) -> None:
    def pause(_: int) -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        SentenceGraph(write_graph(tmp_path / "graph.onnx")).encode([texts([1], (0, 1))], pause)


@pytest.mark.parametrize("lengths", [[], [0, 0], [3, 0, 7], [126] * 40, [5000, 1]])
def test_batches_are_bounded_and_lose_nothing(lengths: list[int]) -> None:
    batches = _batches(lengths)
    assert sorted(number for batch in batches for number in batch) == [n for n, length in enumerate(lengths) if length]
    for batch in batches:
        assert len(batch) == 1 or len(batch) * (2 + max(lengths[n] for n in batch)) <= BATCH_TOKENS


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no graph", "no graph that can be read"),
        ({"longest": "many"}, "no sentence encoder of keyblock-encoder"),
        ({"first": "-1"}, "no sentence encoder of keyblock-encoder"),
    ],
)
def test_files_that_hold_no_encoder_are_refused(tmp_path: Path, content: bytes | dict[str, str], said: str) -> None:
    path = tmp_path / "sentence_encoder.onnx"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        write_graph(path, **content)
    with pytest.raises(ValueError, match=said) as error:
        ENCODERS.create({"name": "sentence"}).open(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_single_tokens_have_no_vectors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="none of single tokens"):
        SentenceGraph(write_graph(tmp_path / "graph.onnx")).similar(np.asarray([1], np.int32))
