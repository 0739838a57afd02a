from hypothesis import given
from hypothesis import strategies as st

from service.ranking.slicing import SLICE_CHARS, SLICE_DOCUMENTS, slices


@given(st.lists(st.integers(0, 2 * SLICE_CHARS) | st.integers(0, 2000), max_size=200))
def test_slices_cover_everything_once_within_their_bounds(sizes: list[int]) -> None:
    cut = list(slices(sizes))
    assert [number for numbers in cut for number in numbers] == list(range(len(sizes)))
    for numbers in cut:
        assert 1 <= len(numbers) <= SLICE_DOCUMENTS
        assert len(numbers) == 1 or sum(sizes[n] for n in numbers) <= SLICE_CHARS
