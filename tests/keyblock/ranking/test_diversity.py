import numpy as np
import pytest
from numpy.typing import NDArray

from keyblock.ranking.answer import finished
from keyblock.ranking.diversity import by_marginal_relevance

EAST, NORTH, NORTH_EAST, NOTHING = (127, 0), (0, 127), (90, 90), (0, 0)


def order(relevance: list[float], *vectors: tuple[int, int], diversity: float) -> list[int]:
    return finished(by_marginal_relevance(np.asarray(relevance), np.asarray(vectors, np.int8), diversity))


def test_a_copy_comes_after_what_is_different() -> None:
    """By hand, at .5: 0 is first; then 1 has .5 * 1 - .5 * 1 = 0, and 2 has .5 * .3 / .4 - .5 * 0 = .375."""
    assert order([0.4, 0.4, 0.3], EAST, EAST, NORTH, diversity=0.5) == [0, 2, 1]


def test_a_little_diversity_moves_no_much_better_result() -> None:
    """By hand, at .1: 1 has .9 * 1 - .1 * 1 = .8, and 2 has .9 * .75 = .675."""
    assert order([0.4, 0.4, 0.3], EAST, EAST, NORTH, diversity=0.1) == [0, 1, 2]


def test_likeness_is_that_to_the_most_alike_of_those_before() -> None:
    """By hand, at .5, after 0: 1 has .45 - .5 * .707 = .096, 2 has .4. Then 1 is as near to 2, and 3, a copy of 0, has .35 - .5."""
    assert order([1.0, 0.9, 0.8, 0.7], EAST, NORTH_EAST, NORTH, EAST, diversity=0.5) == [0, 2, 1, 3]


@pytest.mark.parametrize("diversity", [0.0, 0.3, 1.0])
def test_the_best_is_first_and_equals_keep_their_order(diversity: float) -> None:
    assert order([0.2, 0.2, 0.2], EAST, EAST, EAST, diversity=diversity) == [0, 1, 2]
    assert order([0.2, 0.1], NOTHING, NOTHING, diversity=diversity) == [0, 1]
    assert order([0.0, 0.0], EAST, NORTH, diversity=diversity) == [0, 1]


def test_no_results() -> None:
    nothing: NDArray[np.int8] = np.zeros((0, 2), np.int8)
    assert finished(by_marginal_relevance(np.zeros(0), nothing, 0.5)) == []


def test_once_it_is_late_what_is_chosen_is_first() -> None:
    looks = iter([False])
    vectors = np.asarray([EAST, EAST, NORTH, NORTH], np.int8)
    assert finished(by_marginal_relevance(np.asarray([0.4, 0.4, 0.3, 0.2]), vectors, 0.5, lambda: next(looks, True))) == [0, 2]
