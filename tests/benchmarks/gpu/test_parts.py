"""Every part that computes, end to end on the CPU: what a row says, and that right answers come out."""

import numpy as np
import pytest
import torch

from benchmarks.gpu import device, parity, speed
from benchmarks.gpu.bench import Bench
from benchmarks.gpu.engines import CPU_WAYS, GPU_WAYS, Way, choice_of, open_engine, open_session, random_batch, ways_of
from benchmarks.gpu.graphs import EMBEDDED, graph_file
from keyblock.runtime.providers import Provider, ProviderError
from keyblock.runtime.session import Session
from tests.benchmarks.gpu.conftest import SIZES, TINY, TINY_ROBERTA


def test_the_device_and_its_rates(bench: Bench) -> None:
    rows = list(device.measure(bench))
    assert [row["table"] for row in rows] == ["device", *["roofline"] * 4, "clocks"]
    assert rows[0]["providers"][-1] == "CPUExecutionProvider"
    assert [row["what"] for row in rows[1:-1]] == ["fp32", "fp16", "bf16", "memory"], "TF32 and pinned memory are a GPU's"
    assert min(row["rate"] for row in rows[1:-1]) > 0


def test_parity_says_how_far_logits_move(bench: Bench) -> None:
    rows = {row["way"]: row for row in parity.measure(bench)}
    assert rows["CPU fp32"]["largest"] == 0
    assert rows["CPU fp32"]["sequences"] == SIZES.sequences
    for way in ("CPU fp32, its graph filled again", "CPU fp32, bound", "CPU fp32, standard operators"):
        assert rows[way]["largest"] < 1e-4
        assert (rows[way]["first_kept"], rows[way]["swapped"]) == (1, 0)
    assert "NOT_IMPLEMENTED" in rows["CPU bf16"]["refused"] or "bfloat16" in rows["CPU bf16"]["refused"]


def test_order_by_hand() -> None:
    """Query 0: 3 > 2 > 1 becomes 3 > 1 > 2, one pair of three swapped. Query 1: 5 > 4 becomes 4 > 5: the first is another."""
    reference, found = np.float32([3, 2, 1, 5, 4]), np.float32([3, 1, 2, 4, 4.5])
    row = parity.compared(reference, found, np.asarray([0, 0, 0, 1, 1]))
    assert row == {"largest": 1.0, "mean": pytest.approx(0.7), "first_kept": 0.5, "swapped": 0.5}


def test_equal_scores_are_no_pair_to_swap() -> None:
    assert parity.swapped(np.float32([1, 1, 0]), np.float32([0, 1, 2])) == (2, 2)


@pytest.mark.parametrize("shape", [TINY, TINY_ROBERTA], ids=lambda shape: shape.name)
def test_speed_by_way_budget_and_batch(bench: Bench, shape: speed.Shape) -> None:
    rows = list(speed.measure(bench, shape))
    assert not [row for row in rows if "refused" in row]
    cells = [(row["way"], row["precision"], row["budget"], row["batch"]) for row in rows]
    assert cells == [(way.title, way.precision, budget, batch) for way in CPU_WAYS for budget in (16, 32) for batch in (1, 3)]
    for row in rows:
        assert 0 < row["latency"] <= row["latency_p90"]
        assert row["achieved"] == row["sequences"] * shape.encoder.operations(row["budget"])


def test_what_a_library_refuses_is_a_row(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph that did not travel, then a batch too large: the cell beside it is measured."""
    monkeypatch.setattr(speed, "ways_of", lambda *_: (Way("none", "fp32", Provider.CPU, "odd"), CPU_WAYS[0]))
    real = speed.timed
    cells = iter(["CUDA out of memory"])

    def full(work: speed.Work, seconds: float) -> dict[str, float]:
        for said in cells:
            raise RuntimeError(said)
        return real(work, seconds)

    monkeypatch.setattr(speed, "timed", full)
    first, second, third = speed.measure(bench, TINY, cells=[(16, 3), (16, 1)])
    assert first["refused"] == "tiny has no graph odd"
    assert (second["refused"], second["batch"]) == ("CUDA out of memory", 3)
    assert third["latency"] > 0


def test_times_by_a_clock_that_the_work_moves() -> None:
    """Started alone, a batch takes 0.1 s. Of batches that do not wait for each other, each takes 0.05 s."""

    class Work:
        now, alone = 0.0, True

        def start(self) -> None:
            self.now += 0.05

        def answer(self) -> np.ndarray:
            self.now += 0.05
            return np.zeros(1)

    work = Work()
    found = speed.timed(work, 2.0, lambda: work.now)
    assert found["latency"] == pytest.approx(0.1)
    assert found["latency_p90"] == pytest.approx(0.1)
    assert found["rate"] == pytest.approx(10 / (10 * 0.05 + 0.05))


def test_bound_buffers_give_the_session_s_logits(bench: Bench) -> None:
    batch = random_batch(3, 16, 2000)
    work = open_session(bench, EMBEDDED, Way("", "fp32", Provider.CPU, "fp32", bound=True))(batch)
    expected = Session(graph_file(bench, EMBEDDED, "fp32"), "cpu", threads=1).score(*batch)
    for _ in range(2):
        work.start()
        np.testing.assert_allclose(work.answer(), expected, atol=1e-5)


def test_pytorch_uses_its_own_attention(bench: Bench) -> None:
    model = TINY.peer(torch.bfloat16, torch.device("cpu"))
    assert model.config._attn_implementation == "sdpa"
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    work = open_engine(bench, TINY, CPU_WAYS[-1])(random_batch(3, 16, TINY.vocabulary))
    work.start()
    assert work.answer().shape == (3,)


def test_a_missing_gpu_is_an_error(bench: Bench) -> None:
    with pytest.raises(ProviderError, match="provider cuda was asked for"):
        choice_of(bench, GPU_WAYS[0])
    assert ways_of(Provider.CUDA) == GPU_WAYS
