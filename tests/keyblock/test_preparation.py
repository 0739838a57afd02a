"""Single texts of every kind: offsets, nothing lost, caps."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given

from keyblock.description import PipelineConfig
from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument
from keyblock.queries import QUERY_TERMS
from keyblock.text.analyzer import DocumentFrequencies, term_key
from keyblock.text.tokenizer import Tokenizer
from tests.keyblock.pipelines import LONE, PLAIN_PROSE, PROSE, TEXT, make, slices_of
from tests.support.vectors import concept_table


def assert_sound(text: str, document: PreparedDocument, longest: int) -> None:
    """Blocks tile the tokens; offsets are valid, ascending, apart and never empty; terms are divided as the blocks are."""
    n = document.n_blocks
    starts, ends = document.bounds.T
    np.testing.assert_array_equal(starts[1:], ends[:-1])
    assert [*starts[:1], *ends[-1:]] == ([0, len(document.token_ids)] if n else [])
    assert n or not len(document.token_ids)
    assert ((ends - starts >= 1) & (ends - starts <= longest)).all()
    assert document.bounds.shape == (n, 2)
    assert document.bounds.dtype == document.starts.dtype == document.ends.dtype == np.int32
    assert len(document.starts) == len(document.ends) == n
    assert len(document.term_bounds) == n + 1
    assert document.term_bounds[-1] == len(document.terms)
    places = list(zip(document.starts.tolist(), document.ends.tolist(), strict=True))
    assert all(0 <= start < end <= len(text) for start, end in places)
    for (start, end), (following, last) in pairwise(places):
        assert start <= following
        assert following >= end or end == last, "only blocks within one character share it"


@given(TEXT)
def test_offsets_hold_for_any_text(
    fine: Pipeline, single: Pipeline, pipeline: Pipeline, small_block_pipelines: list[Pipeline], text: str
) -> None:
    without_overlap = [(each, 5) for each in small_block_pipelines[1:]]
    for each, longest in ((pipeline, 63), (fine, 5), (single, 1), *without_overlap):
        assert_sound(text, each.prepare_document(text), longest)


def test_offsets_where_one_character_is_several_tokens(fine: Pipeline, single: Pipeline) -> None:
    """A Hangul syllable becomes two or three tokens of the same offsets, and a cut may fall between them."""
    text = "감사합니다 안녕하세요 " * 20
    for each, longest in ((fine, 5), (single, 1)):
        document = each.prepare_document(text)
        assert len(document.token_ids) > 2 * len(text.replace(" ", ""))
        assert_sound(text, document, longest)


def test_a_character_cut_in_two_leaves_no_block_empty(pipeline: Pipeline) -> None:
    document = pipeline.prepare_document("가 " * 32)
    assert list(zip(document.starts.tolist(), document.ends.tolist(), strict=True)) == [(0, 63), (62, 63)]


@given(PROSE)
def test_nothing_is_lost(pipeline: Pipeline, small_block_pipelines: list[Pipeline], prose: list[tuple[str, str]]) -> None:
    """The blocks' slices are the text but for what stands between them, and that is white space."""
    text = " ".join(word + mark for word, mark in prose)
    for each in (pipeline, *small_block_pipelines[1:]):
        slices = slices_of(text, each.prepare_document(text))
        assert "".join("".join(slices).split()) == "".join(text.split())


@given(TEXT)
def test_overlapping_windows_hold_for_any_text(windows: Pipeline, text: str) -> None:
    """Each window begins where its first token does and ends where its last does; every token is in one."""
    document = windows.prepare_document(text)
    encoding = windows.tokenizer.encode([text])[0]
    assert document.term_bounds[-1] == len(document.terms)
    assert {t for first, end in document.bounds.tolist() for t in range(first, end)} == set(range(len(document.token_ids)))
    for block, (first, end) in enumerate(document.bounds.tolist()):
        place = document.starts[block], document.ends[block]
        assert place == (encoding.token_to_chars(first)[0], encoding.token_to_chars(end - 1)[1])
        assert 0 <= place[0] < place[1] <= len(text)
        keys = document.terms[document.term_bounds[block] : document.term_bounds[block + 1]]
        assert keys.tolist() == windows.analyzer.keys(text[place[0] : place[1]])


@given(PLAIN_PROSE)
def test_a_blocks_slice_has_the_blocks_tokens_and_terms(fine: Pipeline, pipeline: Pipeline, prose: list[tuple[str, str]]) -> None:
    """Words of one token each: no cut can fall inside one, so tokenizing the text between the offsets gives the block again."""
    text = " ".join(word + mark for word, mark in prose)
    for each in (fine, pipeline):
        document = each.prepare_document(text)
        for block, (first, last) in enumerate(document.bounds.tolist()):
            piece = text[document.starts[block] : document.ends[block]]
            assert each.tokenizer.ids(piece).tolist() == document.token_ids[first:last].tolist()
            keys = document.terms[document.term_bounds[block] : document.term_bounds[block + 1]]
            assert keys.tolist() == each.analyzer.keys(piece)


@pytest.mark.parametrize("text", ["", " \n\t", "\x00\x00", LONE, "\u202e\u202c", "\ufffd"])
def test_texts_without_a_token(pipeline: Pipeline, text: str) -> None:
    document = pipeline.prepare_document(text)
    assert (document.n_blocks, len(document.token_ids), len(document.terms)) == (0, 0, 0)
    selection = pipeline.select(pipeline.prepare_query("river"), document)
    assert selection.packed.ids.tolist() == [101, 2314, 102, 102]
    assert selection.evidence.tolist() == [0.0] * 5


def test_megabytes_without_punctuation(pipeline: Pipeline) -> None:
    one_word, many = "x" * 2_000_000, "river " * 150_000
    query = pipeline.prepare_query("river")
    for text, n_blocks in ((one_word, 0), (many, -(-150_000 // 63))):  # the first is no language
        document = pipeline.prepare_document(text)
        assert document.n_blocks == n_blocks
        assert_sound(text, document, 63)
        assert len(pipeline.select(query, document).packed.ids) <= 128


def test_a_long_query_is_capped_in_tokens_but_selects_by_all_of_it(pipeline: Pipeline) -> None:
    query = pipeline.prepare_query("city " * 60 + "river")
    assert len(query.token_ids) == 48
    assert query.truncated
    assert query.terms.tolist() == [term_key("citi"), term_key("river")]
    assert not pipeline.prepare_query("city " * 48).truncated
    document = pipeline.prepare_document("Nothing here. " * 40 + "A river. " + "Nothing here. " * 40)
    best = int(pipeline.select(query, document).packed.taken[0])
    assert term_key("river") in document.terms[document.term_bounds[best] : document.term_bounds[best + 1]]


def test_a_pasted_page_as_query_has_a_bounded_number_of_terms(pipeline: Pipeline) -> None:
    query = pipeline.prepare_query(" ".join(f"word{i}" for i in range(5000)))
    assert query.terms.tolist() == [term_key(f"word{i}") for i in range(QUERY_TERMS)]


def test_the_title_is_capped_and_can_be_left_out(
    pipeline: Pipeline, tokenizer: Tokenizer, frequencies: DocumentFrequencies
) -> None:
    assert pipeline.prepare_document("text", "city " * 40).title_ids.tolist() == tokenizer.ids("city " * 16).tolist()
    assert pipeline.prepare_document("text").title_ids.tolist() == []
    untitled = make(tokenizer, frequencies, packing={"title_tokens": 0})
    assert untitled.prepare_document("text", "City").title_ids.tolist() == []


def test_batches_and_threads_prepare_alike(pipeline: Pipeline) -> None:
    texts = [f"Document {i}. " + "The river floods, the bridge stands. " * (i % 11) for i in range(120)]
    alone = [pipeline.prepare_document(text, "title") for text in texts]
    with ThreadPoolExecutor(6) as pool:
        threaded = list(pool.map(pipeline.prepare_document, texts, ["title"] * len(texts)))
    for others in (threaded, pipeline.prepare_documents(texts, ["title"] * len(texts))):
        for one, other in zip(alone, others, strict=True):
            for name in one.__slots__:
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_the_size_in_memory_counts_every_array(pipeline: Pipeline, hybrid: Pipeline) -> None:
    for each in (pipeline, hybrid):
        document = each.prepare_document("The river floods the bridge. The city is old.", title="City")
        arrays = [getattr(document, name) for name in document.__slots__]
        assert (document.vectors is None) == (each is pipeline)
        assert document.nbytes == sum(array.nbytes for array in arrays if array is not None) > 0


def test_a_querys_vector_is_of_more_than_the_model_reads(hybrid: Pipeline) -> None:
    query = hybrid.prepare_query("season " * 300 + "sick")
    assert query.truncated
    assert query.vector is not None
    assert query.vector.tolist() == [1, 0, 0, 0, 0, 0]


def test_a_pipeline_is_given_the_encoder_that_it_describes(tokenizer: Tokenizer, frequencies: DocumentFrequencies) -> None:
    with pytest.raises(ValueError, match=r"the description has \{.*static.*\} encoder, and none is given"):
        Pipeline(PipelineConfig(encoder={"name": "static"}), tokenizer, frequencies)
    with pytest.raises(ValueError, match="the description has no encoder"):
        Pipeline(PipelineConfig(), tokenizer, frequencies, concept_table(tokenizer))


def test_documents_of_another_pipeline_are_an_error(pipeline: Pipeline, hybrid: Pipeline) -> None:
    ours, plain = (one.prepare_document("The river. " * 40, "T") for one in (hybrid, pipeline))
    hybrid.check(ours)
    pipeline.check(plain)
    with pytest.raises(ValueError, match=r"has vectors of shape None, and the pipeline makes them of \(\d, 6\)"):
        hybrid.check(plain)
    with pytest.raises(ValueError, match=r"has vectors of shape \(\d, 6\), and the pipeline makes them of None"):
        pipeline.check(ours)
    assert ours.vectors is not None
    with pytest.raises(ValueError, match=r"has vectors of shape \(\d, 3\)"):
        hybrid.check(replace(ours, vectors=ours.vectors[:, :3]))
