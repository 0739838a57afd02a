"""On a machine whose clock the tests turn: a run takes as long as they say."""

from collections.abc import Callable

import numpy as np
import pytest

from keyblock.runtime.batching import BatchTooLargeError, capped
from service.engine.warmup import first_runs

MOST = capped(128, 1024)  # 32, 64, 96 and 128 tokens; 32, 16, 10 and 8 rows
Speed = Callable[[int], float]


class Timed:
    """A graph that takes what `speed` says of a number of tokens, in seconds."""

    def __init__(self, speed: Speed, memory: int = 10**6) -> None:
        self.speed, self.memory = speed, memory
        self.clock = 0.0
        self.shapes: list[tuple[int, ...]] = []

    def score(self, ids: np.ndarray, types: np.ndarray, mask: np.ndarray) -> np.ndarray:
        if ids.size > self.memory:
            raise BatchTooLargeError("failed to allocate")
        self.shapes.append(ids.shape)
        self.clock += self.speed(ids.size)
        return np.zeros(len(ids), np.float32)


@pytest.fixture
def rows_by_length() -> Callable[[Timed, float], dict[int, int]]:
    def measure(graph: Timed, seconds: float) -> dict[int, int]:
        return {length: rows for rows, length, _ in filter(None, first_runs(graph, MOST, seconds, lambda: graph.clock))}

    return measure


def test_other_work_may_come_between_any_two_runs() -> None:
    graph = Timed(lambda tokens: tokens * 1e-6)
    ran = 0
    for _ in first_runs(graph, MOST, 0.05, lambda: graph.clock):
        assert len(graph.shapes) - ran <= 1
        ran = len(graph.shapes)
    assert ran == len(graph.shapes)


def test_a_fast_machine_fills_the_cap(rows_by_length: Callable[[Timed, float], dict[int, int]]) -> None:
    assert rows_by_length(Timed(lambda tokens: tokens * 1e-6), 0.05) == MOST


def test_on_a_slow_one_batches_stay_short(rows_by_length: Callable[[Timed, float], dict[int, int]]) -> None:
    """A tenth of a millisecond a token: 500 tokens in 50 ms."""
    graph = Timed(lambda tokens: tokens * 1e-4)
    assert rows_by_length(graph, 0.05) == {32: 8, 64: 4, 96: 4, 128: 2}
    assert max(rows * length for rows, length in graph.shapes) <= 500, "what is bound to take longer is not tried"
    assert graph.shapes.count((4, 96)) == 1, "its tokens take what they take in fewer rows, and 8 rows would take far too long"
    assert graph.shapes.count((8, 32)) == 2, "16 rows would take 51 ms: a busy machine could be why"


def test_a_single_sequence_may_take_longer(rows_by_length: Callable[[Timed, float], dict[int, int]]) -> None:
    assert rows_by_length(Timed(lambda tokens: tokens * 1e-2), 0.05) == dict.fromkeys(MOST, 1)


@pytest.mark.parametrize(
    ("slow", "runs"),
    [
        ([9.0], 2),  # something was made ready
        ([9.0, 9.0], 3),  # and then the machine was busy: asked again before that decides
        ([9.0, 4.0], 3),
        ([0.04, 0.04], 3),  # quick enough, but it would have two rows take too long
    ],
)
def test_slow_runs_say_little(rows_by_length: Callable[[Timed, float], dict[int, int]], slow: list[float], runs: int) -> None:
    left = iter(slow)
    graph = Timed(lambda tokens: next(left, 1e-6 * tokens))
    assert rows_by_length(graph, 0.05) == MOST
    assert graph.shapes.count((1, 32)) == runs


def test_two_runs_that_take_as_long_are_believed(rows_by_length: Callable[[Timed, float], dict[int, int]]) -> None:
    """0.03 s for 8 rows of 32 tokens, so 16 would take too long: the first run was no usual one, the next two decide."""
    graph = Timed(lambda tokens: 0.03 if tokens >= 256 else 1e-6 * tokens)
    assert rows_by_length(graph, 0.05)[32] == 8
    assert graph.shapes.count((8, 32)) == 3


def test_a_first_run_that_takes_what_is_usual_is_not_repeated() -> None:
    """It is repeated if it takes longer than other shapes predict: something was prepared in it, which is no part of the pace."""
    for first, runs in ((1.0, 1), (1.2, 1), (1.5, 2)):
        graph = Timed(lambda tokens: tokens * 1e-6)
        graph.speed = lambda tokens, graph=graph, first=first: (
            tokens * 1e-6 * (first if graph.shapes.count(graph.shapes[-1]) == 1 else 1)
        )
        found = {
            (rows, length): taken
            for rows, length, taken in filter(None, first_runs(graph, MOST, 0.05, lambda graph=graph: graph.clock))
        }
        assert graph.shapes.count((1, 32)) == 2, "nothing is known yet"
        assert graph.shapes.count((8, 96)) == runs
        assert found[8, 96] == pytest.approx(8 * 96e-6 * (first if runs == 1 else 1))


def test_memory_bounds_the_rows(rows_by_length: Callable[[Timed, float], dict[int, int]], caplog: pytest.LogCaptureFixture) -> None:
    assert rows_by_length(Timed(lambda _: 0.0, memory=200), 0.05) == {32: 4, 64: 2, 96: 2, 128: 1}
    assert "batches of 32 tokens have fewer than 8 rows, for want of memory: failed to allocate" in caplog.text
    with pytest.raises(BatchTooLargeError):
        rows_by_length(Timed(lambda _: 0.0, memory=100), 0.05)
