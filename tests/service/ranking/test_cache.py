import sys

from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument, content_digest
from service.ranking.cache import ENTRY_BYTES, DocumentCache


def test_a_prepared_document_is_found_as_it_is(pipeline: Pipeline) -> None:
    cache, document = DocumentCache(1 << 20), pipeline.prepare_document("the river flooded the bridge. " * 20)
    cache.put(b"key", document)
    assert cache.get(b"key") is document
    assert cache.nbytes == document.nbytes + ENTRY_BYTES


def test_keys_tell_title_and_text_apart() -> None:
    pairs = [("ab", "c"), ("a", "bc"), ("abc", ""), ("", "abc"), ("c", "ab"), ("\ud800", ""), ("\ufffd", "")]
    assert len({content_digest(title, text) for text, title in pairs}) == len(pairs)


def test_an_entry_costs_about_what_is_counted(pipeline: Pipeline) -> None:
    prepared = pipeline.prepare_document("the river flooded the bridge. " * 20)
    arrays = [array for name in PreparedDocument.__slots__ if (array := getattr(prepared, name)) is not None]
    elsewhere = sum(array.nbytes for array in arrays if array.base is not None)  # what the compiled part has allocated
    real = sum(map(sys.getsizeof, arrays)) + elsewhere + sys.getsizeof(prepared) + sys.getsizeof(content_digest("", "")) + 100
    assert 0.7 * real < prepared.nbytes + ENTRY_BYTES < 1.5 * real
