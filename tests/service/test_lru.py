import sys
import threading
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument, content_digest
from service.lru import DOCUMENT_ENTRY_BYTES, LARGEST_SHARE, Lru


def test_keeps_and_forgets_the_least_recently_used() -> None:
    lru: Lru[str] = Lru(LARGEST_SHARE * 10, len)
    values = {bytes([i]): f"{i:010}" for i in range(LARGEST_SHARE + 1)}
    first, second, *_, last = values
    for key in list(values)[:-1]:
        lru.put(key, values[key])
    assert lru.get(first) == "0000000000"  # used again, so the second is the oldest
    lru.put(last, values[last])
    assert lru.get_all([first, second, last]) == [values[first], None, values[last]]


@given(st.lists(st.dictionaries(st.integers(0, 9), st.integers(0, 40), max_size=3), max_size=60))
def test_bytes_are_counted_and_bounded(puts: list[dict[int, int]]) -> None:
    lru: Lru[str] = Lru(100, len)
    for put in puts:
        lru.put_all({bytes([key]): "a" * size for key, size in put.items()})
        assert lru.nbytes <= 100
    kept = [value for value in lru.get_all(bytes([key]) for key in range(10)) if value is not None]
    assert len(lru) == len(kept)
    assert lru.nbytes == sum(map(len, kept))
    assert max(map(len, kept), default=0) * LARGEST_SHARE <= 100


def test_what_is_too_large_leaves_what_was_kept_before_it() -> None:
    lru: Lru[str] = Lru(LARGEST_SHARE * 10, len)
    lru.put(b"key", "fits")
    lru.put(b"key", "does not fit")
    assert lru.get(b"key") == "fits"


def test_nothing_is_kept_without_room_or_after_clearing() -> None:
    none, some = Lru[str](0, len), Lru[str](100, len)
    for lru in (none, some):
        lru.put(b"key", "a")
    assert (none.get(b"key"), some.get(b"key")) == (None, "a")
    some.clear()
    assert (some.get(b"key"), len(some), some.nbytes) == (None, 0, 0)


def test_threads_at_once_keep_the_count_right() -> None:
    lru: Lru[str] = Lru(200, len)

    def use(seed: int) -> None:
        random = Random(seed)
        for _ in range(2000):
            key = bytes([random.randrange(20)])
            lru.put(key, "a" * random.randrange(25))
            lru.get_all([key, b"\x00"])

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=use, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    kept = [value for value in lru.get_all(bytes([key]) for key in range(20)) if value is not None]
    assert lru.nbytes == sum(map(len, kept)) <= 200
    assert len(lru) == len(kept)


def test_keys_tell_title_and_text_apart() -> None:
    pairs = [("ab", "c"), ("a", "bc"), ("abc", ""), ("", "abc"), ("c", "ab"), ("\ud800", ""), ("\ufffd", "")]
    assert len({content_digest(title, text) for text, title in pairs}) == len(pairs)


def test_an_entry_costs_about_what_is_counted(pipeline: Pipeline) -> None:
    prepared = pipeline.prepare_document("the river flooded the bridge. " * 20)
    arrays = [array for name in PreparedDocument.__slots__ if (array := getattr(prepared, name)) is not None]
    elsewhere = sum(array.nbytes for array in arrays if array.base is not None)  # what the compiled part has allocated
    real = sum(map(sys.getsizeof, arrays)) + elsewhere + sys.getsizeof(prepared) + sys.getsizeof(content_digest("", "")) + 100
    assert 0.7 * real < prepared.nbytes + DOCUMENT_ENTRY_BYTES < 1.5 * real
