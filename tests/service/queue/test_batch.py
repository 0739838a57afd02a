from collections.abc import Callable

import pytest

from keyblock.runtime import batching
from keyblock.text.tokenizer import Tokenizer
from service.pace import Pace
from service.queue.batch import Caps, Encoder, first_runs
from tests.service.faults import PATIENCE, Faulty


def test_the_first_runs_measure_how_large_a_batch_may_be(faulty: Faulty, tokenizer: Tokenizer) -> None:
    encoder = Encoder(faulty, "tiny", tokenizer, Pace())
    runs = list(encoder.first_runs(128, Caps(512, PATIENCE), lambda work: work()))
    assert len(runs) > len(set(faulty.shapes)), "it yields after each"
    assert encoder.most_rows == {32: 16, 64: 8, 96: 5, 128: 4}
    assert encoder.batch_tokens == 512
    assert encoder.pace.seconds > 0


MOST = batching.capped(128, 1024)  # 32, 64, 96 and 128 tokens; 32, 16, 10 and 8 rows


class Graph:
    """A graph that takes what `speed` says of a number of tokens, in seconds."""

    def __init__(self, speed: Callable[[int], float], memory: int = 10**6) -> None:
        self.speed, self.memory = speed, memory
        self.shapes: list[tuple[int, int]] = []

    def timed(self, rows: int, length: int) -> float:
        if rows * length > self.memory:
            raise batching.BatchTooLargeError("failed to allocate")
        self.shapes.append((rows, length))
        return self.speed(rows * length)

    def rows_by_length(self) -> dict[int, int]:
        """Of the shapes that may be used, where a batch may take 50 ms."""
        return {length: rows for rows, length, _ in filter(None, first_runs(self.timed, MOST, 0.05))}


def test_on_a_slow_one_batches_stay_short() -> None:
    """A tenth of a millisecond a token: 500 tokens in 50 ms."""
    graph = Graph(lambda tokens: tokens * 1e-4)
    assert graph.rows_by_length() == {32: 8, 64: 4, 96: 4, 128: 2}
    assert max(rows * length for rows, length in graph.shapes) <= 500, "what is bound to take longer is not tried"
    assert graph.shapes.count((4, 96)) == 1, "its tokens take what they take in fewer rows, and 8 rows would take far too long"
    assert graph.shapes.count((8, 32)) == 2, "16 rows would take 51 ms: a busy machine could be why"


def test_a_single_sequence_may_take_longer() -> None:
    assert Graph(lambda tokens: tokens * 1e-2).rows_by_length() == dict.fromkeys(MOST, 1)


@pytest.mark.parametrize(
    ("slow", "runs"),
    [
        ([9.0], 2),  # something was made ready
        ([9.0, 9.0], 3),  # and then the machine was busy: asked again before that decides
        ([9.0, 4.0], 3),
        ([0.04, 0.04], 3),  # quick enough, but it would have two rows take too long
    ],
)
def test_slow_runs_say_little(slow: list[float], runs: int) -> None:
    left = iter(slow)
    graph = Graph(lambda tokens: next(left, 1e-6 * tokens))
    assert graph.rows_by_length() == MOST
    assert graph.shapes.count((1, 32)) == runs


def test_two_runs_that_take_as_long_are_believed() -> None:
    """0.03 s for 8 rows of 32 tokens, so 16 would take too long: the first run was no usual one, the next two decide."""
    graph = Graph(lambda tokens: 0.03 if tokens >= 256 else 1e-6 * tokens)
    assert graph.rows_by_length()[32] == 8
    assert graph.shapes.count((8, 32)) == 3


def test_memory_bounds_the_rows(caplog: pytest.LogCaptureFixture) -> None:
    assert Graph(lambda _: 0.0, memory=200).rows_by_length() == {32: 4, 64: 2, 96: 2, 128: 1}
    assert "batches of 32 tokens have fewer than 8 rows, for want of memory: failed to allocate" in caplog.text
    with pytest.raises(batching.BatchTooLargeError):
        Graph(lambda _: 0.0, memory=100).rows_by_length()
