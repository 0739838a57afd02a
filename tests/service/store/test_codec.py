"""Stored documents as bytes, and their seal."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.description import PipelineConfig
from keyblock.pipeline import Pipeline
from service.store.base import HEAD
from service.store.codec import (
    SEAL_BYTES,
    VERSION,
    WITH_VECTORS,
    DamagedError,
    Seal,
    StoredDocument,
    decode,
    decoded_bytes,
    encode,
    pack_text,
)
from tests.support.prepared import assert_equal
from tests.support.vectors import concept_table

ANY = st.text(st.characters(codec=None), max_size=200)
WORDS = st.lists(st.sampled_from(["river ", "bridge. ", "\x00", "\ud800", "😀", "مرحبا ", "東京都。", "e\u0301"]), max_size=300)
FINGERPRINT = bytes(range(16))


def stored(pipeline: Pipeline, text: str, title: str = "", identity: str = "a", expires: int = 0) -> StoredDocument:
    return StoredDocument(identity, title, pack_text(text), pipeline.prepare_document(text, title), FINGERPRINT, expires)


@given(ANY | WORDS.map("".join), ANY, ANY, st.integers(0, 2**63))
def test_any_document_comes_back(pipeline: Pipeline, text: str, title: str, identity: str, expires: int) -> None:
    document = stored(pipeline, text, title, identity, expires)
    content = encode(document)
    found = decode(content)
    assert (found.id, found.title, found.text, found.expires) == (identity, title, text, expires)
    assert (found.fingerprint, found.head) == (FINGERPRINT, content[:HEAD])
    assert_equal(found.prepared, document.prepared)


def test_long_documents(pipeline: Pipeline) -> None:
    document = stored(pipeline, "The river flooded the bridge. " * 3000)
    assert document.prepared.ends[-1] > 1 << 16
    assert_equal(decode(encode(document)).prepared, document.prepared)


@pytest.fixture(scope="module")
def hybrid(pipeline: Pipeline) -> Pipeline:
    config = PipelineConfig(encoder={"name": "static"})
    return Pipeline(config, pipeline.tokenizer, pipeline.frequencies, concept_table(pipeline.tokenizer))


@given(ANY | WORDS.map("".join))
def test_vectors_come_back(hybrid: Pipeline, text: str) -> None:
    document = stored(hybrid, text)
    content = encode(document)
    assert content[0] == WITH_VECTORS
    assert_equal(decode(content).prepared, document.prepared)
    with_text = len(text.encode("utf-8", "surrogatepass"))
    held = decoded_bytes(content, text=True) - decoded_bytes(content, text=False)
    assert held == with_text
    assert decoded_bytes(content, text=False) >= document.prepared.nbytes


@pytest.mark.parametrize("vectors", [b"", b"\x06", b"\x06\x00", b"\x05\x00" + bytes(6), b"\x06\x00" + bytes(12)])
def test_vectors_that_are_not_the_blocks(hybrid: Pipeline, vectors: bytes) -> None:
    """One block has six numbers, whose dimensions stand in front."""
    content = encode(stored(hybrid, "The river flooded the bridge."))
    cut = content[: -len(b"\x06\x00") - 6] + vectors
    lengths = struct.Struct("<11I")
    *others, _ = lengths.unpack_from(cut, HEAD)
    body = (cut[:HEAD] + lengths.pack(*others, len(vectors)) + cut[HEAD + lengths.size :])[5:]
    with pytest.raises(DamagedError, match="was not written by KeyBlock"):
        decode(struct.pack("<BI", WITH_VECTORS, zlib.crc32(body)) + body)


def test_two_writings_of_one_document_are_distinguished(pipeline: Pipeline) -> None:
    document = stored(pipeline, "river")
    assert len({encode(document)[:HEAD] for _ in range(50)}) == 50


@given(st.data())
def test_damage_is_seen(pipeline: Pipeline, data: st.DataObject) -> None:
    content = encode(stored(pipeline, "The river flooded the bridge.", "Floods"))
    at = data.draw(st.integers(0, len(content) - 1))
    flipped = data.draw(st.integers(1, 255))
    with pytest.raises(DamagedError):
        decode(content[:at] + bytes([content[at] ^ flipped]) + content[at + 1 :])
    with pytest.raises(DamagedError):
        decode(content[:at])


def test_the_size_of_a_document_with_a_page_of_zeros_is_no_error(pipeline: Pipeline) -> None:
    """It is asked for before the checksum is looked at."""
    content = encode(stored(pipeline, "The river flooded the bridge.", "Floods"))
    for at in range(len(content)):
        assert decoded_bytes(content[:at] + bytes(len(content) - at), text=True) >= 0


def test_another_version_is_named(pipeline: Pipeline) -> None:
    content = encode(stored(pipeline, "river"))
    with pytest.raises(DamagedError, match=f"of format 9, and this version reads {VERSION}"):
        decode(b"\x09" + content[1:])


SEAL = Seal("k" * 32)


@given(ANY, ANY, st.binary(max_size=100))
def test_what_is_sealed_is_opened(namespace: str, identity: str, content: bytes) -> None:
    sealed = SEAL.sealed(namespace, identity, content)
    assert len(sealed) == len(content) + SEAL.extra_bytes == len(content) + SEAL_BYTES
    assert SEAL.opened(namespace, identity, sealed) == content


def test_without_a_key_values_are_as_they_are() -> None:
    assert Seal().sealed("n", "a", b"value") == Seal().opened("n", "a", b"value") == b"value"
    assert Seal().extra_bytes == 0


@pytest.mark.parametrize(
    ("namespace", "identity", "sealed"),
    [
        ("n", "a", b"value"),
        ("n", "a", b""),
        ("n", "a", b"other" + SEAL.sealed("n", "a", b"value")[5:]),
        ("n", "b", SEAL.sealed("n", "a", b"value")),
        ("m", "a", SEAL.sealed("n", "a", b"value")),
        ("na", "", SEAL.sealed("n", "a", b"value")),
        ("n", "a", Seal("x" * 32).sealed("n", "a", b"value")),
    ],
)
def test_nothing_else_is_opened(namespace: str, identity: str, sealed: bytes) -> None:
    """Not an unsealed value, not a changed one, not that of another id or namespace, and not that of another key."""
    with pytest.raises(DamagedError, match="not sealed with this service's KEYBLOCK_STORE_KEY"):
        SEAL.opened(namespace, identity, sealed)
