import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument
from service.ranking.cache import ENTRY_BYTES, LARGEST_SHARE, DocumentCache, content_key


def document(n_bytes: int) -> PreparedDocument:
    nothing = np.zeros(0, dtype=np.int32)
    terms = np.zeros(n_bytes // 8, dtype=np.int64)
    return PreparedDocument(nothing, nothing, nothing, nothing, terms, nothing, nothing)


def test_keeps_and_forgets_the_least_recently_used() -> None:
    cache = DocumentCache(LARGEST_SHARE * (800 + ENTRY_BYTES))
    documents = {bytes([i]): document(800) for i in range(LARGEST_SHARE + 1)}
    for key in list(documents)[:-1]:
        cache.put(key, documents[key])
    assert cache.get(b"\x00") is documents[b"\x00"]
    cache.put(bytes([LARGEST_SHARE]), documents[bytes([LARGEST_SHARE])])
    assert cache.get(b"\x01") is None
    assert cache.get(b"\x00") is documents[b"\x00"]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40_000)), max_size=60))
def test_bytes_are_counted_and_bounded(puts: list[tuple[int, int]]) -> None:
    cache = DocumentCache(100_000)
    kept: dict[bytes, int] = {}
    for key, size in puts:
        cache.put(bytes([key]), document(size))
        kept[bytes([key])] = size // 8 * 8
    present = {key for key in kept if cache.get(key) is not None}
    assert len(cache) == len(present)
    assert cache.nbytes <= 100_000
    # a document that was too large leaves the one kept before it under the same key
    assert cache.nbytes == sum(found.nbytes + ENTRY_BYTES for key in present if (found := cache.get(key)) is not None)


def test_a_cache_of_nothing_keeps_nothing() -> None:
    cache = DocumentCache(0)
    cache.put(b"a", document(0))
    assert cache.get(b"a") is None


def test_keys_tell_title_and_text_apart() -> None:
    pairs = [("ab", "c"), ("a", "bc"), ("abc", ""), ("", "abc"), ("c", "ab"), ("\ud800", ""), ("\ufffd", "")]
    assert len({content_key(text, title) for text, title in pairs}) == len(pairs)


def test_an_entry_costs_about_what_is_counted(pipeline: Pipeline) -> None:
    import sys

    prepared = pipeline.prepare_document("the river flooded the bridge. " * 20)
    arrays = [getattr(prepared, name) for name in PreparedDocument.__slots__]
    real = sum(sys.getsizeof(array) for array in arrays) + sys.getsizeof(prepared) + sys.getsizeof(content_key("", "")) + 100
    assert 0.7 * real < prepared.nbytes + ENTRY_BYTES < 1.5 * real
