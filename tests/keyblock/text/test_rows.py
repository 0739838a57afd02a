"""Rows in flat arrays, against lists of lists."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from keyblock.text.rows import Growing, GrowingRows, Rows, stacked

Lists = list[list[int]]
LISTS = st.lists(st.lists(st.integers(0, 99), max_size=3), max_size=8)


def rows(lists: Lists) -> Rows:
    values = np.asarray([value for row in lists for value in row], dtype=np.int64)
    return Rows(np.asarray([len(row) for row in lists], dtype=np.int32), (values, -values))


def lists_of(found: Rows) -> Lists:
    ends = np.cumsum(found.counts)
    values, negated = found.columns
    np.testing.assert_array_equal(values, -negated)
    return [values[end - count : end].tolist() for count, end in zip(found.counts, ends, strict=True)]


@given(LISTS, st.data())
def test_only_some(lists: Lists, data: st.DataObject) -> None:
    kept = data.draw(st.lists(st.booleans(), min_size=len(lists), max_size=len(lists)))
    expected = [row for row, keep in zip(lists, kept, strict=True) if keep]
    assert lists_of(rows(lists).only(np.asarray(kept, dtype=np.bool_))) == expected


@given(LISTS, st.data())
def test_empty_rows_are_filled(lists: Lists, data: st.DataObject) -> None:
    empty = [i for i, row in enumerate(lists) if not row]
    more = data.draw(st.lists(st.lists(st.integers(0, 99), max_size=3), min_size=len(empty), max_size=len(empty)))
    filled = dict(zip(empty, more, strict=True))
    found = rows(lists).filled(np.asarray(empty, dtype=np.intp), rows(more))
    assert lists_of(found) == [filled.get(i, row) for i, row in enumerate(lists)]


@given(st.lists(LISTS, min_size=1, max_size=4))
def test_several_are_stacked(several: list[Lists]) -> None:
    assert lists_of(stacked([rows(lists) for lists in several])) == [row for lists in several for row in lists]


@given(st.lists(LISTS, min_size=1, max_size=6), st.data())
def test_rows_that_grew_are_taken(several: list[Lists], data: st.DataObject) -> None:
    growing, lists = GrowingRows.of(rows(several[0])), [row for some in several for row in some]
    for some in several[1:]:
        growing = growing.appended(rows(some))
    numbers = data.draw(st.lists(st.sampled_from(range(len(lists))), max_size=12)) if lists else []
    assert lists_of(growing.taken(np.asarray(numbers, dtype=np.int32))) == [lists[number] for number in numbers]


def test_what_was_there_stays_as_it_was() -> None:
    older = Growing.of(np.arange(3))
    newer = older.appended(np.asarray([7]))
    newest = newer.appended(np.asarray([8]))
    assert newest.array is newer.array
    values = [growing.array[: growing.size].tolist() for growing in (older, newer, newest)]
    assert values == [[0, 1, 2], [0, 1, 2, 7], [0, 1, 2, 7, 8]]


def test_few_appended_values_are_copied_seldom() -> None:
    growing, arrays = Growing.of(np.zeros(1000)), set()
    for _ in range(1000):
        growing = growing.appended(np.zeros(1))
        arrays.add(id(growing.array))
    assert growing.size == 2000
    assert len(arrays) <= 3
