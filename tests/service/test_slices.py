"""Slices hold everything once, within their bounds, and are no shorter than they need to be."""

from hypothesis import given
from hypothesis import strategies as st

from service.slices import slices


def test_by_hand() -> None:
    assert list(slices([], 4, 10)) == []
    assert list(slices([1] * 9, 4, 10)) == [range(4), range(4, 8), range(8, 9)]
    assert list(slices([5, 5, 1, 45, 1], 4, 10)) == [range(2), range(2, 3), range(3, 4), range(4, 5)]


@given(st.lists(st.integers(0, 20), max_size=200), st.integers(1, 40), st.integers(0, 30))
def test_slices_cover_everything_once_within_their_bounds(sizes: list[int], most: int, most_together: int) -> None:
    cut = list(slices(sizes, most, most_together))
    assert [number for numbers in cut for number in numbers] == list(range(len(sizes)))
    for numbers in cut:
        assert 1 <= len(numbers) <= most
        assert len(numbers) == 1 or sum(sizes[n] for n in numbers) <= most_together
    for numbers in cut[:-1]:
        assert len(numbers) == most or sum(sizes[n] for n in [*numbers, numbers.stop]) > most_together
