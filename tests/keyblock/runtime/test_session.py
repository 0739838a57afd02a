import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.external_data_helper import set_external_data

from keyblock.bundle import load_bundle
from keyblock.runtime.cpus import vnni_feature
from keyblock.runtime.providers import Precision, Provider, ProviderError, resolve
from keyblock.runtime.session import LEFT_OUT, OutOfMemoryError, ScoreError, Session, SessionError, _check_provider

OPENVINO_ONLY = pytest.mark.skipif(
    "OpenVINOExecutionProvider" not in onnxruntime.get_available_providers(),
    reason="this ONNX Runtime has no OpenVINO (onnxruntime-openvino)",
)
OPENVINO = pytest.param("openvino", marks=OPENVINO_ONLY)
DEFAULT = Path(__file__).parents[3] / "models" / "default"
MakeGraph = Callable[..., Path]


@pytest.mark.parametrize(("module", "given", "kept"), [("keyblock.runtime.session", None, "1"), ("export.graph", "0", "0")])
def test_nothing_is_reported_to_anybody(module: str, given: str | None, kept: str) -> None:
    """ONNX Runtime looks for the variable when it is loaded, so it has to be there by then; who sets it has the last word."""
    looks = f"""
import os, sys, importlib.abc
class Watch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "onnxruntime":
            print(os.environ.get("ORT_DISABLE_TELEMETRY"), flush=True)
            os._exit(0)
sys.meta_path.insert(0, Watch())
import {module}
"""
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    environment |= {"ORT_DISABLE_TELEMETRY": given} if given is not None else {}
    done = subprocess.run([sys.executable, "-c", looks], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == kept


def batch(rows: int, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A batch in which row i has i + 1 tokens."""
    random = np.random.default_rng(0)
    mask = (np.arange(length) <= np.arange(rows)[:, None]).astype(np.int64)
    return random.integers(0, 200, (rows, length)), random.integers(0, 2, (rows, length)), mask


@pytest.mark.parametrize("provider", ["cpu", OPENVINO])
def test_scores_are_the_graphs(graph: Path, provider: str) -> None:
    session = Session(graph, provider, threads=1, precision=Precision.FP32)
    assert session.choice.provider == provider
    for shape in ((3, 8), (1, 5), (4, 8)):
        ids, types, mask = batch(*shape)
        logits = session.score(ids, types, mask)
        assert logits.dtype == np.float32
        np.testing.assert_allclose(logits, (mask * (0.5 * ids + types)).sum(1), rtol=1e-6)
    ids, types, mask = (array[:, ::2] for array in batch(3, 8))  # strides, and integers of other sizes
    logits = session.score(ids.astype(np.int32), types, mask.astype(np.int8))  # type: ignore[arg-type]
    np.testing.assert_allclose(logits, (mask * (0.5 * ids + types)).sum(1), rtol=1e-6)


@pytest.mark.parametrize(
    "shapes",
    [((2, 4), (2, 4), (2, 3)), ((2, 4), (2,), (2, 4)), ((0, 4), (0, 4), (0, 4)), ((2, 0), (2, 0), (2, 0)), ((8,), (8,), (8,))],
)
def test_shapes_that_do_not_fit(graph: Path, shapes: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(ScoreError, match=r"must share one shape \(batch, length\)"):
        Session(graph, Provider.CPU, threads=1).score(*(np.ones(shape, np.int64) for shape in shapes))


def test_a_logit_that_is_not_finite_is_an_error(make_graph: MakeGraph) -> None:
    session = Session(make_graph("huge", factor=3e38), Provider.CPU, threads=1)
    ids, types, mask = batch(2, 8)
    with pytest.raises(ScoreError, match="not finite"):
        session.score(ids, types, mask)
    np.testing.assert_array_equal(session.score(ids * 0, types, mask), (types * mask).sum(1))


def test_a_failure_inside_the_runtime_is_one_line_and_the_session_lives(make_graph: MakeGraph) -> None:
    session = Session(make_graph(), Provider.CPU, threads=1)
    with pytest.raises(ScoreError, match=r"scoring a batch of shape \(1, 4\) on cpu failed: ") as caught:
        session.score(np.full((1, 4), "x"), np.zeros((1, 4)), np.ones((1, 4)))  # type: ignore[arg-type]
    assert len(str(caught.value).splitlines()) == 1
    assert session.score(*batch(2, 4)).shape == (2,)


@pytest.mark.parametrize("said", ["AllocateRaw Failed to allocate memory", "CUDA failure 2: out of memory", "std::bad_alloc"])
def test_too_little_memory_is_an_error_of_its_own(graph: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    session = Session(graph, Provider.CPU, threads=1)

    class Full:
        def run(self, *_: object) -> None:
            raise RuntimeError(said)

    monkeypatch.setattr(session, "_session", Full())
    with pytest.raises(OutOfMemoryError, match=r"shape \(2, 4\) on cpu failed"):
        session.score(*batch(2, 4))


@pytest.mark.parametrize("provider", ["cpu", OPENVINO])
@pytest.mark.parametrize("content", [b"", b"no graph at all"])
def test_a_file_that_is_no_graph(tmp_path: Path, provider: str, content: bytes) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(SessionError, match=r"model\.onnx: ") as caught:
        Session(tmp_path / "model.onnx", provider, threads=1)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("shape", [(2, "length"), ("batch", 16)])
def test_a_frozen_dimension_is_refused(make_graph: MakeGraph, shape: tuple[str | int, ...]) -> None:
    with pytest.raises(SessionError, match="not int64 with batch and length free"):
        Session(make_graph("frozen", shape=shape), Provider.CPU, threads=1)


def test_another_models_inputs_and_a_missing_file_are_refused(make_graph: MakeGraph, tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="a ranker's graph has"):
        Session(make_graph("other", inputs=("pixels", "token_type_ids", "attention_mask")), Provider.CPU, threads=1)
    with pytest.raises(SessionError, match="no such graph"):
        Session(tmp_path / "none.onnx", Provider.CPU)


@pytest.mark.parametrize("provider", ["cpu", OPENVINO])
def test_outputs_beside_the_logit(graph: Path, wide_graph: Path, provider: str) -> None:
    session = Session(wide_graph, provider, threads=1, precision=Precision.FP32)
    assert (session.width, Session(graph, provider, threads=1).width) == (3, None)
    for shape in ((3, 8), (1, 5)):
        ids, types, mask = batch(*shape)
        logits = (mask * (0.5 * ids + types)).sum(1)
        np.testing.assert_allclose(session.score(ids, types, mask), np.outer(logits, [1, 1 / 2, 1 / 3]), rtol=1e-5)


@pytest.mark.parametrize(
    ("operator", "given", "shape"), [("Unsqueeze", ["logits", "axis"], ["batch", 1]), ("Identity", ["masked"], ["batch", "length"])]
)
def test_an_output_that_is_no_rankers(graph: Path, tmp_path: Path, operator: str, given: list[str], shape: list[str | int]) -> None:
    model = onnx.load(str(graph))
    model.graph.node.append(helper.make_node(operator, given, ["outputs"]))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("outputs", TensorProto.FLOAT, shape))
    onnx.save(model, tmp_path / "other.onnx")
    with pytest.raises(
        SessionError, match=r"output outputs is tensor\(float\) .*; a ranker's is float: logits of shape \(batch,\)"
    ):
        Session(tmp_path / "other.onnx", Provider.CPU, threads=1)


@pytest.mark.parametrize("provider", ["cpu", OPENVINO])
def test_weights_in_another_file(graph: Path, tmp_path: Path, provider: str) -> None:
    """The factor is 2 in a file of links, behind seven bytes: 2 * 3 + 0 and 2 * 4 + 1 make 15. Nobody looks there again."""
    stored, folder = tmp_path / "content", tmp_path / "bundle"
    folder.mkdir()
    stored.write_bytes(b"1234567" + np.float32(2).tobytes() + b"more")
    (folder / "model.onnx").symlink_to(stored)
    model = onnx.load(str(graph))
    (factor,) = (tensor for tensor in model.graph.initializer if tensor.name == "factor")
    factor.CopyFrom(helper.make_tensor("factor", TensorProto.FLOAT, [], np.float32(0.5).tobytes(), raw=True))
    set_external_data(factor, "model.onnx", offset=7, length=4)
    factor.ClearField("raw_data")
    (folder / "model.other.onnx").write_bytes(model.SerializeToString())
    session = Session(folder / "model.other.onnx", provider, 1, Precision.FP32, shared=folder / "model.onnx")
    given = np.array([[3, 4]]), np.array([[0, 1]]), np.ones((1, 2), np.int64)
    assert session.score(*given).tolist() == [15]
    stored.write_bytes(b"")
    assert session.score(*given).tolist() == [15]


@OPENVINO_ONLY
def test_openvino_folds_constants_itself_and_takes_the_embedded_graphs_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same scores whoever folds; of the embedded bundle no graph needs a second try."""
    bundle = load_bundle(DEFAULT)
    for precision in (Precision.FP32, Precision.INT8_STATIC) if vnni_feature() else (Precision.FP32,):
        choice = resolve(Provider.OPENVINO, threads=1, precision=precision, variants=[precision])
        files, scores = bundle.encoder_files(precision)[0], []
        for left_out in LEFT_OUT:
            monkeypatch.setattr("keyblock.runtime.session.LEFT_OUT", (left_out,))
            scores.append(Session(files.graph, choice, 1, shared=files.shared).score(*batch(3, 40)))
        np.testing.assert_allclose(*scores, atol=0.05)  # of logits of about 10


def test_another_file_without_the_weights_is_one_line(graph: Path, tmp_path: Path) -> None:
    with pytest.raises(SessionError, match=r"sum\.onnx: ONNX Runtime cannot load it on cpu: .*No such file.*model\.onnx") as caught:
        Session(graph, "cpu", 1, shared=tmp_path / "model.onnx")
    assert "\n" not in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_provider_that_fell_back_is_an_error() -> None:
    with pytest.raises(ProviderError, match="cuda was chosen, but ONNX Runtime fell back to CPUExecutionProvider"):
        _check_provider(Provider.CUDA, ["CPUExecutionProvider"])
