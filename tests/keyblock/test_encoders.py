"""Vectors against a slow loop, by hand, and of any text; tables that are none are refused in words."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from keyblock.description import PipelineConfig
from keyblock.encoders import (
    ENCODERS,
    LARGEST_SCALE,
    SIMILAR_TOKENS,
    Texts,
    TokenTable,
    open_encoder,
    quantized,
    unit,
)
from keyblock.pipeline import Pipeline
from keyblock.prepared import BLOCKS_AT_ONCE, QUANTUM
from keyblock.text.analyzer import DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer
from tests.support.compiled import need_compiled

# of tokens 0 to 3: (1, 0), (0, 2), (3, 4) and nothing
HAND = TokenTable(np.asarray([[10, 0], [0, 10], [30, 40], [7, 7]], np.int8), np.asarray([0.1, 0.2, 0.1, 0], np.float32))
ANY = st.text(st.characters(codec=None), max_size=300)


def texts(ids: list[int], *bounds: tuple[int, int]) -> Texts:
    return Texts(np.asarray(ids, np.int32), np.asarray(bounds, np.int32).reshape(-1, 2))


def slow(table: TokenTable, of: Texts) -> NDArray[np.float64]:
    """Token by token."""
    found = np.zeros((len(of.bounds), table.dimensions))
    for row, (start, end) in enumerate(of.bounds.tolist()):
        for token in of.token_ids[start:end].tolist():
            found[row] += float(table.scales[token]) * table.table[token].astype(float)
        length = float(np.sqrt((found[row] ** 2).sum()))
        found[row] = found[row] / length if length else 0
    return found


def random_table(vocabulary: int, dimensions: int) -> TokenTable:
    rng = np.random.default_rng(5)
    scales = rng.uniform(0, 0.1, vocabulary).astype(np.float32)
    return TokenTable(rng.integers(-127, 128, (vocabulary, dimensions), dtype=np.int8), scales)


def test_vectors_by_hand() -> None:
    """Tokens 0 and 1 make (1, 2) of length sqrt 5; token 2 alone (3, 4) of length 5; token 3 counts nothing."""
    (found,) = HAND.encode([texts([0, 1, 2, 3], (0, 2), (2, 3), (3, 4), (1, 4))])
    expected = [[1 / 5**0.5, 2 / 5**0.5], [0.6, 0.8], [0, 0], [3 / 45**0.5, 6 / 45**0.5]]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert quantized(found).tolist() == [[57, 114], [76, 102], [0, 0], [57, 114]]


@given(st.data())
def test_vectors_equal_a_slow_loop(data: st.DataObject) -> None:
    """Blocks that overlap, leave tokens out, or are empty; several texts at once, some without any."""
    several = []
    for _ in range(data.draw(st.integers(0, 3))):
        ids = data.draw(st.lists(st.integers(0, 49), max_size=80))
        place = st.integers(0, len(ids))
        ranges = sorted(tuple(sorted(pair)) for pair in data.draw(st.lists(st.tuples(place, place), max_size=9)))
        several.append(texts(ids, *[(first, last) for first, last in ranges]))
    table = random_table(50, 7)
    for found, of in zip(table.encode(several), several, strict=True):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, slow(table, of), atol=1e-4)


def test_a_book_is_encoded_in_parts() -> None:
    """More blocks than are looked up together, overlapping where one part ends."""
    ids = np.random.default_rng(1).integers(0, 50, 3000).astype(np.int32)
    starts = np.arange(0, 3000, 20, dtype=np.int32)
    of = Texts(ids, np.stack([starts, np.minimum(starts + 31, 3000)], axis=1))
    assert len(of.bounds) > 2 * BLOCKS_AT_ONCE
    table = random_table(50, 16)
    np.testing.assert_allclose(table.encode([of])[0], slow(table, of), atol=1e-5)


def test_work_may_be_ended_between_two_texts() -> None:
    def stop(chars: int) -> None:
        raise InterruptedError(chars)

    with pytest.raises(InterruptedError):
        HAND.encode([texts([0], (0, 1))], stop)


def test_vectors_have_length_1_or_0() -> None:
    given = np.asarray([[3, 4], [0, 0], [1e-30, 0], [1e12, 0]], np.float32)
    np.testing.assert_allclose(unit(given), [[0.6, 0.8], [0, 0], [0, 0], [1, 0]])


@pytest.fixture(scope="module")
def windows(tokenizer: Tokenizer, frequencies: DocumentFrequencies) -> Pipeline:
    """Overlapping passages with vectors."""
    segmenter = {"name": "window", "block_tokens": 7, "stride": 5}
    config = PipelineConfig(segmenter=segmenter, encoder={"name": "static"})
    return Pipeline(config, tokenizer, frequencies, random_table(tokenizer.vocabulary_size, 8))


@given(ANY)
def test_any_text_has_a_vector_for_each_block(windows: Pipeline, text: str) -> None:
    document = windows.prepare_document(text, "river")
    assert document.vectors is not None
    assert (document.vectors.shape, document.vectors.dtype) == ((document.n_blocks, 8), np.int8)
    assert isinstance(windows.encoder, TokenTable)
    expected = slow(windows.encoder, Texts(document.token_ids, document.bounds))
    assert np.abs(document.vectors / 127 - expected).max(initial=0) < 0.51 / 127 + 1e-4
    query = windows.prepare_query(text)
    assert query.vector is not None
    assert np.linalg.norm(query.vector) == pytest.approx(1 if len(query.token_ids) else 0, abs=1e-5)


def test_a_table_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "token_vectors.npz"
    HAND.write(path)
    read = TokenTable.read(path)
    assert (read.table.tolist(), read.scales.tolist()) == (HAND.table.tolist(), HAND.scales.tolist())
    assert (read.vocabulary_size, read.dimensions, read.fingerprint) == (4, 2, HAND.fingerprint)


TABLE, SCALES = np.zeros((4, 2), np.int8), np.zeros(4, np.float32)


def saved(**arrays: NDArray[np.generic]) -> bytes:
    """As NumPy saves them."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]  # an array cannot be `allow_pickle`, the other parameter
    return stream.getvalue()


def archive(**parts: bytes) -> bytes:
    """A zip of these, stored as they are."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made:
        for name, content in parts.items():
            made.writestr(name, content)
    return stream.getvalue()


HUGE = b"{'descr': '|i1', 'fortran_order': False, 'shape': (9999999999, 999999), }".ljust(117) + b"\n"
SOUND = archive(table=b"text", scales=b"text")
ONE_ARRAY = zipfile.ZipFile(io.BytesIO(saved(table=TABLE))).read("table.npy")
SHAPE = "must be int8 of shape (vocabulary, dimensions), not "
NONE = "no table of token vectors"
WRONG = {
    "no scales": (saved(table=TABLE), NONE),
    "another kind of numbers": (saved(table=TABLE.astype(np.float32), scales=SCALES), f"{SHAPE}float32 (4, 2)"),
    "one dimension": (saved(table=TABLE[0], scales=SCALES), f"{SHAPE}int8 (2,)"),
    "no dimensions": (saved(table=TABLE[:, :0], scales=SCALES), f"{SHAPE}int8 (4, 0)"),
    "too few scales": (saved(table=TABLE, scales=SCALES[:3]), "'scales' must be float32 of shape (4,), not float32 (3,)"),
    "no number": (saved(table=TABLE, scales=SCALES + np.float32("nan")), "'scales' must hold numbers from -1e+06 to 1e+06"),
    "too large": (saved(table=TABLE, scales=SCALES + np.float32(2 * LARGEST_SCALE)), "'scales' must hold numbers"),
    "objects": (saved(table=np.asarray([{}]), scales=SCALES), NONE),
    "one array": (ONE_ARRAY, "one array, and no archive of them"),
    "empty": (b"", NONE),
    "a zip cut short": (b"PK\x03\x04 cut short", NONE),
    "an array cut short": (b"\x93NUMPY\x01\x00 cut", NONE),
    "no archive": (b"no archive", NONE),
    "no arrays": (SOUND, NONE),
    "larger than any memory": (archive(**{"table.npy": b"\x93NUMPY\x01\x00\x76\x00" + HUGE, "scales.npy": b""}), NONE),
    "encrypted": (SOUND.replace(b"PK\x01\x02\x14\x03\x14\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01"), NONE),
    "packed in an unknown way": (
        SOUND.replace(b"PK\x01\x02\x14\x03\x14\x00\x00\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x00\x00\x63"),
        NONE,
    ),
    "of a later version of zip": (SOUND.replace(b"PK\x01\x02\x14\x03\x14", b"PK\x01\x02\x14\x03\xfa"), NONE),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_file_that_is_no_table_is_refused_in_one_line(tmp_path: Path, wrong: str) -> None:
    content, problem = WRONG[wrong]
    path = tmp_path / "token_vectors.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"token_vectors.npz: ") as caught:
        TokenTable.read(path)
    assert problem in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_table_of_another_tokenizer(tmp_path: Path, tokenizer: Tokenizer) -> None:
    HAND.write(tmp_path / "mine.npz")
    with pytest.raises(ValueError, match=r"mine.npz: is of a vocabulary of 4 tokens, and the tokenizer has 30522: they belong"):
        open_encoder({"name": "static", "file": "mine.npz"}, tmp_path, tokenizer)
    assert open_encoder(None, tmp_path, tokenizer) is None


def test_a_run_and_a_bundle_carry_it_under_its_own_name() -> None:
    described = ENCODERS.create({"name": "static", "file": "somewhere/else.npz"})
    assert described.carried().describe() == {"name": "static", "file": "token_vectors.npz"}
    assert ENCODERS.create(described.describe()) == described


def similar(table: TokenTable, query: list[int]) -> NDArray[np.float32]:
    """How near each token of the vocabulary is to those of a query, asked in two parts; what is no token is as the last one."""
    near, ids = table.similar(np.asarray(query, np.int32)), np.arange(table.vocabulary_size + 1, dtype=np.int32)
    found = np.concatenate([near.of(ids[:2]), near.of(ids[::-1])[::-1][2:]])
    assert np.array_equal(found[-1], found[-2])
    return found[:-1]


def test_similar_tokens_by_hand() -> None:
    """Directions (1, 0), (0, 1), (0.6, 0.8), none; weights 1, 2, 5, 0. A query of tokens 1, 2, 2 and 3: shares 2 / 7 and 5 / 7."""
    found = similar(HAND, [2, 1, 3, 2])
    np.testing.assert_allclose(found.T, [[0, 2 / 7, 0.8 * 2 / 7, 0], [0.6 * 5 / 7, 0.8 * 5 / 7, 5 / 7, 0]], atol=1e-6)
    assert similar(HAND, [3]).shape == (4, 0)
    against = TokenTable(np.asarray([[10, 0], [-10, 0]], np.int8), np.ones(2, np.float32))
    assert similar(against, [0]).tolist() == [[1], [0]], "what is opposed is no nearer than what is unrelated"


def test_the_weightiest_tokens_of_a_long_query() -> None:
    table = random_table(200, 5)
    found = similar(table, list(range(200)))
    assert found.shape == (200, SIMILAR_TOKENS)
    assert found.max(axis=0).sum() == pytest.approx(1, abs=1e-4)
    weights = np.linalg.norm(table.table.astype(np.float32), axis=1) * table.scales
    assert found.argmax(axis=0).tolist() == sorted(np.argsort(-weights)[:SIMILAR_TOKENS].tolist()), "each is nearest to itself"


@given(st.lists(st.integers(0, 39), max_size=80), st.lists(st.tuples(st.integers(0, 80), st.integers(0, 80)), max_size=6))
def test_compiled_vectors(ids: list[int], ranges: list[tuple[int, int]]) -> None:
    """As the plain ones, but for numbers halfway between two whole ones."""
    need_compiled()
    table, places = random_table(40, 33), sorted(tuple(min(place, len(ids)) for place in sorted(pair)) for pair in ranges)
    of = texts(ids, *((start, end) for start, end in places))
    (found,), (expected,) = table.quantized([of]), table.encode([of])
    assert found.dtype == np.int8
    assert np.abs(found - expected * QUANTUM).max(initial=0) <= 0.5 + 1e-4


def test_compiled_vectors_of_tokens_out_of_range() -> None:
    table = need_compiled().Encoder(HAND.table, HAND.scales, HAND.scales)
    for of in (texts([4], (0, 1)), texts([-1], (0, 1)), texts([0], (0, 2)), texts([0], (1, 0))):
        with pytest.raises(ValueError, match="out of range"):
            table.encode(of.token_ids, of.bounds)
    for ids, weights in (([4], [1]), ([-1], [1]), ([0, 1], [1])):
        with pytest.raises(ValueError, match="out of range, or has no weight"):
            need_compiled().Similar(table, np.asarray(ids, np.int32), np.asarray(weights, np.float32))
