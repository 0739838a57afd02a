"""The whole pipeline on text of every kind: offsets, nothing lost, caps, selection."""

import json
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import ValidationError

from keyblock.encoders import Static
from keyblock.packing import pack
from keyblock.pipeline import PackingConfig, Pipeline, PipelineConfig, Selection, Shortlist
from keyblock.prepared import PreparedDocument, PreparedQuery
from keyblock.queries import QUERY_TERMS
from keyblock.selectors import SELECTORS, SelectedBy, rank_blocks
from keyblock.text.analyzer import term_key
from keyblock.text.frequencies import DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer
from tests.vectors import concept_table

LONE = chr(0xD800)  # half of a surrogate pair, as JSON escapes can carry it
ODD = [
    "\x00",
    LONE,
    "😀👨‍👩‍👧",
    "مرحبا",
    "東京都。",
    "감사합니다",
    "e\u0301",
    "ﬃ",
    "İ",
    "\u202e",
    "\ufffd",
    ".",
    ",",
    "\n",
    "[SEP]",
]
PIECES = st.lists(st.sampled_from([*ODD, "river ", "bridge "]), max_size=80)
TEXT = st.text(st.characters(codec=None), max_size=80) | PIECES.map("".join)
WORDS = ["the", "river", "flooded", "bridge", "city", "stone", "unbelievably", "antidisestablishmentarianism", "xqzt"]
MARKS = st.sampled_from(["", "", "", ",", ".", "?", "!"])
PROSE = st.lists(st.tuples(st.sampled_from(WORDS), MARKS), max_size=250)
PLAIN_PROSE = st.lists(st.tuples(st.sampled_from(["the", "river", "flooded", "bridge", "running", "stone"]), MARKS), max_size=250)


MADE: dict[str, Pipeline] = {}


def make(tokenizer: Tokenizer, frequencies: DocumentFrequencies, **parts: Any) -> Pipeline:
    """A pipeline of these parts; made once, for it looks through the whole vocabulary."""
    key = json.dumps(parts)
    if key not in MADE:
        MADE[key] = Pipeline(PipelineConfig.model_validate(parts), tokenizer, frequencies)
    return MADE[key]


@pytest.fixture(scope="module")
def fine(tokenizer: Tokenizer, frequencies: DocumentFrequencies) -> Pipeline:
    """Blocks of at most 5 tokens, so that short texts have many."""
    return make(tokenizer, frequencies, segmenter={"name": "cogltx", "block_tokens": 5})


@pytest.fixture(scope="module")
def single(tokenizer: Tokenizer, frequencies: DocumentFrequencies) -> Pipeline:
    return make(tokenizer, frequencies, segmenter={"name": "cogltx", "block_tokens": 1})


@pytest.fixture(scope="module")
def others(tokenizer: Tokenizer, frequencies: DocumentFrequencies) -> list[Pipeline]:
    """Segmenters of small blocks: windows that overlap or stand side by side, sentences, some of drawn lengths, whole ones."""
    segmenters: list[dict[str, Any]] = [
        {"name": "window", "block_tokens": 5, "stride": 2},
        {"name": "window", "block_tokens": 5, "stride": 5},
        {"name": "sentences", "block_tokens": 5},
        {"name": "sentences", "block_tokens": 5, "shortest": 1},
        {"name": "whole_sentences", "block_tokens": 5},
    ]
    return [make(tokenizer, frequencies, segmenter=segmenter) for segmenter in segmenters]


@pytest.fixture(scope="module")
def windows(others: list[Pipeline]) -> Pipeline:
    return others[0]


def slices_of(text: str, document: PreparedDocument) -> list[str]:
    return [text[start:end] for start, end in zip(document.starts.tolist(), document.ends.tolist(), strict=True)]


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
def test_offsets_hold_for_any_text(fine: Pipeline, single: Pipeline, pipeline: Pipeline, text: str) -> None:
    for each, longest in ((pipeline, 63), (fine, 5), (single, 1)):
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
def test_nothing_is_lost(pipeline: Pipeline, others: list[Pipeline], prose: list[tuple[str, str]]) -> None:
    """The blocks' slices are the text but for what stands between them, and that is white space."""
    text = " ".join(word + mark for word, mark in prose)
    for each in (pipeline, *others[1:]):
        slices = slices_of(text, each.prepare_document(text))
        assert "".join("".join(slices).split()) == "".join(text.split())


@given(TEXT)
def test_offsets_of_other_segmenters_hold_for_any_text(others: list[Pipeline], text: str) -> None:
    for each in others[1:]:
        assert_sound(text, each.prepare_document(text), 5)


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


def test_windows_by_hand(windows: Pipeline) -> None:
    """Five words every two; of nine words three windows."""
    text = "one two three four five six seven eight nine"
    document = windows.prepare_document(text)
    assert slices_of(text, document) == ["one two three four five", "three four five six seven", "five six seven eight nine"]
    assert document.bounds.tolist() == [[0, 5], [2, 7], [4, 9]]


@given(PLAIN_PROSE)
def test_segments_end_where_sentences_do_unless_one_is_too_long(others: list[Pipeline], prose: list[tuple[str, str]]) -> None:
    text = " ".join(word + mark for word, mark in prose)
    for each in others[2:4]:
        for piece in slices_of(text, each.prepare_document(text)):
            assert piece[-1] in ".?!" or text.endswith(piece) or not any(mark in piece for mark in ".?!")


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


def test_blocks_end_where_sentences_do(pipeline: Pipeline) -> None:
    text = " ".join(f"The river reached the old stone bridge for the {n} time." for n in ("first", "second", "third", "last") * 10)
    document = pipeline.prepare_document(text)
    assert document.n_blocks == 8, "five sentences of 12 tokens each"
    assert all(piece.endswith("time.") for piece in slices_of(text, document))


@pytest.mark.parametrize("text", ["", " \n\t", "\x00\x00", LONE, "\u202e\u202c", "\ufffd"])
def test_texts_without_a_token(pipeline: Pipeline, text: str) -> None:
    document = pipeline.prepare_document(text)
    assert (document.n_blocks, len(document.token_ids), len(document.terms)) == (0, 0, 0)
    selection = pipeline.select(pipeline.prepare_query("river"), document)
    assert selection.packed.ids.tolist() == [101, 2314, 102, 102]
    assert selection.evidence.tolist() == [0.0, 0.0, 0.0]


def test_megabytes_without_punctuation(pipeline: Pipeline) -> None:
    one_word, many = "x" * 2_000_000, "river " * 150_000
    query = pipeline.prepare_query("river")
    for text, n_blocks in ((one_word, 1), (many, -(-150_000 // 63))):
        document = pipeline.prepare_document(text)
        assert document.n_blocks == n_blocks
        assert_sound(text, document, 63)
        assert len(pipeline.select(query, document).packed.ids) <= 128


@given(TEXT, TEXT, TEXT, st.integers(64, 256))
def test_any_query_meets_any_document(pipeline: Pipeline, query: str, title: str, text: str, budget: int) -> None:
    prepared, document = pipeline.prepare_query(query), pipeline.prepare_document(text, title)
    selection = pipeline.select(prepared, document, budget)
    ids = selection.packed.ids.tolist()
    assert len(ids) <= budget
    assert ids[: selection.packed.split] == [101, *prepared.token_ids.tolist(), 102]
    assert ids[-1] == 102
    assert ids.count(101) == 1
    assert ids.count(102) == 2, "nothing in a text ends a segment"
    assert np.isfinite(selection.scores).all()
    assert np.isfinite(selection.evidence).all()
    assert selection.packed.taken.tolist() == rank_blocks(selection.scores)[: len(selection.packed.taken)].tolist()


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


def test_the_title_takes_no_part_in_selection(pipeline: Pipeline) -> None:
    query = pipeline.prepare_query("river")
    plain, titled = (pipeline.select(query, pipeline.prepare_document("A city. " * 50, title)) for title in ("", "River"))
    np.testing.assert_array_equal(plain.scores, titled.scores)
    np.testing.assert_array_equal(plain.evidence, titled.evidence)
    assert titled.packed.ids.tolist()[3:5] == [2314, 1037]


def test_the_blocks_that_match_are_fed_in_document_order(pipeline: Pipeline) -> None:
    filler = "It was a quiet afternoon in the little town, as nearly all afternoons there had been for years. " * 8
    text = filler + "The river flooded the old bridge. " + filler + "The river has one bridge. " + filler
    document, query = pipeline.prepare_document(text), pipeline.prepare_query("Which bridge did the river flood?")
    selection = pipeline.select(query, document)
    first, second = selection.packed.taken[:2].tolist()
    assert "flooded the old bridge" in text[document.starts[first] : document.ends[first]]
    assert "has one bridge" in text[document.starts[second] : document.ends[second]]
    fed = selection.packed.ids.tolist()
    flooded, one = (pipeline.tokenizer.ids(words).tolist() for words in ("flooded the old bridge", "has one bridge"))
    places = [next(i for i in range(len(fed)) if fed[i : i + len(words)] == words) for words in (flooded, one)]
    assert places == sorted(places)
    assert selection.evidence[2] == pytest.approx(1.0), "every term of the query occurs in the document"


def test_no_match_keeps_the_documents_beginning(pipeline: Pipeline) -> None:
    document = pipeline.prepare_document("A quiet afternoon in town. " * 100)
    selection = pipeline.select(pipeline.prepare_query("zebra"), document)
    assert selection.packed.taken.tolist() == list(range(len(selection.packed.taken)))
    assert len(selection.packed.ids) == 128


def test_a_budget_without_room_is_an_error(pipeline: Pipeline) -> None:
    query, document = pipeline.prepare_query("river"), pipeline.prepare_document("A city.")
    for budget in (0, 4):
        with pytest.raises(ValueError, match=f"a budget of {budget} tokens has no room"):
            pipeline.select(query, document, budget)


def test_batches_and_threads_prepare_alike(pipeline: Pipeline) -> None:
    texts = [f"Document {i}. " + "The river floods, the bridge stands. " * (i % 11) for i in range(120)]
    alone = [pipeline.prepare_document(text, "title") for text in texts]
    with ThreadPoolExecutor(6) as pool:
        threaded = list(pool.map(pipeline.prepare_document, texts, ["title"] * len(texts)))
    for others in (threaded, pipeline.prepare_documents(texts, ["title"] * len(texts))):
        for one, other in zip(alone, others, strict=True):
            for name in one.__slots__:
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_as_many_titles_as_texts(pipeline: Pipeline) -> None:
    with pytest.raises(ValueError, match="shorter"):
        pipeline.prepare_documents(["one", "two"], ["title"])


def test_a_description_survives_json() -> None:
    config = PipelineConfig.model_validate(
        {"selector": {"name": "bm25", "k1": 1.2}, "packing": {"budget": 96}, "fusion": {"logit": 0.7}}
    )
    assert config.selector == {"name": "bm25", "k1": 1.2, "b": 0.4}, "defaults are written out"
    assert config.segmenter == {"name": "cogltx", "block_tokens": 63}
    assert PipelineConfig.model_validate(json.loads(config.model_dump_json())) == config


@pytest.mark.parametrize(
    ("description", "said"),
    [
        ({"selector": {"name": "splade"}}, "unknown selector 'splade'; known: bm25, first, "),
        ({"selector": {"name": ["bm25"]}}, r"unknown selector \['bm25'\]"),
        ({"selector": {"name": "bm25", "k2": 1}}, r"bm25: k2: .*its parameters are: k1, b"),
        ({"segmenter": {"name": "lines"}}, "unknown segmenter 'lines'; known: cogltx, sentences, whole_sentences, window"),
        ({"aggregator": {"name": "median"}}, "unknown aggregator 'median'; known: joint, max, mean, states, sum"),
        ({"aggregator": {"name": "max", "passages": -1}}, "max: passages"),
        ({"aggregator": {"name": "joint", "passages": 4}}, "joint: passages: .*its parameters are: none"),
        ({"segmenter": {"name": "cogltx", "block_tokens": 0}}, "cogltx: block_tokens"),
        ({"packing": {"budget": 300}}, "budget 300 lies outside budget_range 64 to 256"),
        ({"packing": {"query_tokens": 60}}, "budget_range starts at 64: no room for a block beside 60 query tokens"),
        ({"analyzer": {"lemmatize": True}}, "lemmatize"),
        ({"scorer": "vbert"}, "scorer"),
    ],
)
def test_a_wrong_description_is_named(description: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        PipelineConfig.model_validate(description)


def test_packing_defaults_leave_room() -> None:
    packing = PackingConfig()
    assert packing.budget_range[0] <= packing.budget <= packing.budget_range[1]


SENTENCES = ("The river flooded the bridge. ", "A quiet city of stone. ", "Years went by. ", "The old bridge of the city stands. ")
WORDED = st.lists(st.sampled_from(SENTENCES), max_size=40).map("".join)


def scores_of(shortlist: Shortlist) -> NDArray[np.float32]:
    """Stands for a model's logits: a number of each sequence's tokens that has nothing to do with BM25."""
    return np.asarray([zlib.crc32(packed.ids.tobytes()) % 1000 / 500 - 1 for packed in shortlist.sequences], dtype=np.float32)


def select(pipeline: Pipeline, query: PreparedQuery, document: PreparedDocument) -> Selection:
    """In two rounds, as a learned selector needs."""
    shortlist = pipeline.shortlist(query, document)
    return pipeline.select(query, document, asked=(shortlist, scores_of(shortlist)))


SMALL = {"name": "cogltx", "block_tokens": 12}


@given(WORDED, st.integers(0, 12))
def test_a_learned_selectors_order(fine: Pipeline, text: str, keep: int) -> None:
    """The blocks asked about by the model's logit, then the others by BM25; the evidence is BM25's whatever the model says."""
    learned = make(fine.tokenizer, fine.frequencies, segmenter=SMALL, selector={"name": "learned", "keep": keep})
    plain = make(fine.tokenizer, fine.frequencies, segmenter=SMALL)
    query, document = learned.prepare_query("Did the river flood the city?"), learned.prepare_document(text, "Title")
    cheap, shortlist = plain.select(query, document), learned.shortlist(query, document)
    asked = sorted(rank_blocks(cheap.scores)[: keep or None].tolist())
    logits = dict(zip(asked, scores_of(shortlist).tolist(), strict=True))
    others = [block for block in rank_blocks(cheap.scores).tolist() if block not in logits]
    order = [*sorted(asked, key=lambda block: (-logits[block], -cheap.scores[block], block)), *others]
    selection = select(learned, query, document)
    assert shortlist.blocks.tolist() == asked
    assert selection.taken.tolist() == order[: len(selection.taken)]
    assert selection.scores.tolist() == [logits.get(block, -np.inf) for block in range(document.n_blocks)]
    np.testing.assert_array_equal(shortlist.scores, cheap.scores)
    np.testing.assert_array_equal(selection.evidence, cheap.evidence)
    expected = pack(query, document, np.asarray(order, dtype=np.intp), learned.tokenizer.template, 128)
    np.testing.assert_array_equal(selection.packed.ids, expected.ids)


@given(WORDED)
def test_a_cascade_that_keeps_all_is_binb(fine: Pipeline, text: str) -> None:
    binb = make(fine.tokenizer, fine.frequencies, segmenter=SMALL, selector={"name": "learned"})
    query, document = binb.prepare_query("river"), binb.prepare_document(text)
    cascade = make(fine.tokenizer, fine.frequencies, segmenter=SMALL, selector={"name": "learned", "keep": document.n_blocks})
    one, other = select(binb, query, document), select(cascade, query, document)
    np.testing.assert_array_equal(one.packed.ids, other.packed.ids)
    assert one.taken.tolist() == other.taken.tolist()
    np.testing.assert_array_equal(one.scores, other.scores)


def test_a_block_is_asked_about_as_if_the_document_were_that_block(pipeline: Pipeline) -> None:
    """BinB's pairs: the query, the title, and one block."""
    binb = make(pipeline.tokenizer, pipeline.frequencies, segmenter=SMALL, selector={"name": "learned"})
    text = "".join(SENTENCES * 2)[:-60]
    query, document = binb.prepare_query("river"), binb.prepare_document(text, "Floods")
    sequences = binb.shortlist(query, document).sequences
    assert len(sequences) == document.n_blocks == 3
    for piece, packed in zip(slices_of(text, document), sequences, strict=True):
        alone = pipeline.select(query, pipeline.prepare_document(piece, "Floods")).packed
        assert packed.ids.tolist() == alone.ids.tolist()
        assert packed.split == alone.split


def test_learned_selectors_are_asked_in_two_rounds(pipeline: Pipeline) -> None:
    binb = make(pipeline.tokenizer, pipeline.frequencies, selector={"name": "learned"})
    query, document = pipeline.prepare_query("river"), pipeline.prepare_document("A river.")
    assert not pipeline.asks_model
    assert binb.asks_model
    with pytest.raises(ValueError, match="selector 'bm25' needs no model, so it has no shortlist"):
        pipeline.shortlist(query, document)
    with pytest.raises(ValueError, match="selector 'learned' needs the model's logits of its shortlist"):
        binb.select(query, document)
    with pytest.raises(ValueError, match="a budget of 4 tokens has no room"):
        binb.shortlist(query, document, budget=4)


@given(WORDED, st.sampled_from(["max", "mean", "sum", "states"]), st.integers(0, 6))
def test_passages_are_sequences_of_their_own_in_document_order(fine: Pipeline, text: str, name: str, passages: int) -> None:
    passage = make(fine.tokenizer, fine.frequencies, segmenter=SMALL, aggregator={"name": name, "passages": passages})
    query, document = passage.prepare_query("Which river?"), passage.prepare_document(text, "Title")
    selection = passage.select(query, document, budget=64)
    assert selection.taken.tolist() == rank_blocks(selection.scores)[: passages or None].tolist()
    assert len(selection.sequences) == min(passages or document.n_blocks, document.n_blocks)
    for block, packed in zip(sorted(selection.taken.tolist()), selection.sequences, strict=True):
        alone = pack(query, document, np.asarray([block]), passage.tokenizer.template, 64)
        assert packed.ids.tolist() == alone.ids.tolist()


def test_passages_that_grow_hold_whole_neighbours_and_say_which(fine: Pipeline) -> None:
    text = " ".join(f"Sentence {i} says nothing." for i in range(40)) + " The river flooded. " + "More follows here. " * 40
    packing = {"budget": 64, "budget_range": (64, 64), "query_tokens": 16, "grow": True}
    parts = {"segmenter": {"name": "sentences", "block_tokens": 16}, "packing": packing}
    grown = make(fine.tokenizer, fine.frequencies, aggregator={"name": "max", "passages": 2}, **parts)
    query, document = grown.prepare_query("Which river?"), grown.prepare_document(text)
    selection = grown.select(query, document)
    assert len(selection.sequences) == len(selection.taken) == 2
    first, end = selection.reach[0].tolist()
    assert first < selection.taken[0] < end - 1, "neighbours on both sides"
    passage = text[document.starts[first] : document.ends[end - 1]]
    assert "The river flooded." in passage
    assert passage[0].isupper()
    assert passage[-1] == "."
    in_document = np.argsort(selection.taken)
    whole = selection.sequences[int(np.flatnonzero(in_document == 0)[0])]
    query_ids, text_ids = query.token_ids.tolist(), grown.tokenizer.ids(passage).tolist()
    assert whole.ids.tolist() == [101, *query_ids, 102, *text_ids, 102], "as the tokenizer reads the passage alone"
    turned = selection.decided(np.asarray([1.0, 2.0], dtype=np.float32))
    assert turned.taken.tolist() == [int(selection.taken.max()), int(selection.taken.min())]
    assert turned.reach.tolist() == selection.reach[in_document[::-1]].tolist()


def test_a_short_document_is_one_whole_passage(fine: Pipeline) -> None:
    packing = {"budget": 128, "budget_range": (64, 128), "grow": True}
    parts = {"segmenter": {"name": "sentences", "block_tokens": 8}, "packing": packing}
    grown = make(fine.tokenizer, fine.frequencies, aggregator={"name": "max", "passages": 3}, **parts)
    document = grown.prepare_document("A bridge. A river, and a city by it. Nothing else.")
    (packed,) = grown.select(grown.prepare_query("river"), document).sequences
    assert document.n_blocks > 1
    assert packed.ids[packed.split : -1].tolist() == document.token_ids.tolist()


def test_a_joint_selection_has_one_sequence_always(pipeline: Pipeline) -> None:
    query = pipeline.prepare_query("river")
    for text in ("", "A river. " * 100):
        selection = pipeline.select(query, pipeline.prepare_document(text))
        assert selection.sequences == [selection.packed]
        assert selection.taken is selection.packed.taken
    passages = make(pipeline.tokenizer, pipeline.frequencies, aggregator={"name": "max"})
    assert passages.select(query, passages.prepare_document("")).sequences == []


@given(TEXT, TEXT)
def test_learned_selection_and_passages_on_any_text(others: list[Pipeline], query: str, text: str) -> None:
    for each in others:
        parts = {"segmenter": each.config.segmenter, "selector": {"name": "learned", "keep": 3}, "aggregator": {"name": "max"}}
        pipeline = make(each.tokenizer, each.frequencies, **parts)
        prepared, document = pipeline.prepare_query(query), pipeline.prepare_document(text, text)
        selection = select(pipeline, prepared, document)
        assert sorted(selection.taken.tolist()) == list(range(document.n_blocks))
        assert len(selection.sequences) == document.n_blocks
        assert np.isfinite(selection.evidence).all()
        assert np.isfinite(selection.scores).sum() == min(3, document.n_blocks)
        assert all(packed.ids[-1] == 102 and packed.ids.tolist().count(102) == 2 for packed in selection.sequences)


@pytest.mark.parametrize("selector", ["first", "last", "random", "spread"])
def test_evidence_is_lexical_whatever_selects(fine: Pipeline, selector: str) -> None:
    """By hand: of two blocks, of three terms and of two, the first holds the only term that the query shares, once."""
    text = "winter garden. river. stone garden."
    pipeline = make(fine.tokenizer, fine.frequencies, segmenter={"name": "cogltx", "block_tokens": 5}, selector={"name": selector})
    query, document = pipeline.prepare_query("river"), pipeline.prepare_document(text)
    assert np.diff(document.term_bounds).tolist() == [3, 2]
    idf = np.log((1000 + 1) / (20 + 0.5))  # "river" is in 20 of the table's 1000 documents
    bm25 = idf * 1 / (0.9 * (1 - 0.4 + 0.4 * 3 / 2.5) + 1)
    assert pipeline.select(query, document).evidence.tolist() == pytest.approx([bm25, bm25 / 3, 1.0])
    nothing = pipeline.select(pipeline.prepare_query("teacher"), document)
    assert nothing.evidence.tolist() == [0, 0, 0], "a longer document has no more evidence"


@pytest.mark.parametrize(
    ("selector", "evidence"),
    [
        ({"name": "bm25", "k1": 2.0}, {"name": "bm25", "k1": 2.0, "b": 0.4}),
        ({"name": "tfidf"}, {"name": "tfidf"}),
        ({"name": "learned", "by": {"name": "tfidf"}}, {"name": "tfidf"}),
        ({"name": "hybrid", "by": {"name": "tfidf"}}, {"name": "tfidf"}),
        ({"name": "learned", "by": {"name": "first"}}, {"name": "bm25", "k1": 0.9, "b": 0.4}),
        ({"name": "last"}, {"name": "bm25", "k1": 0.9, "b": 0.4}),
    ],
    ids=str,
)
def test_a_description_from_before_evidence_was_declared(selector: dict[str, Any], evidence: dict[str, Any]) -> None:
    """A lexical selector goes on to be its own evidence; weights that were learned on places in the document are dropped."""
    fusion = {"bias": -1.0, "logit": 0.5, "best_block": 0.3, "top_blocks": 0.2, "coverage": 2.0}
    config = PipelineConfig.model_validate({"selector": selector, "fusion": fusion, "encoder": {"name": "static"}})
    assert config.evidence == evidence
    of_places = selector["name"] == "last" or selector.get("by") == {"name": "first"}
    assert config.fusion.model_dump() == fusion | ({"best_block": 0.0, "top_blocks": 0.0} if of_places else {})
    assert PipelineConfig.model_validate(config.model_dump()) == config


def test_declared_evidence_keeps_its_weights() -> None:
    parts = {"selector": {"name": "last"}, "evidence": {"name": "tfidf"}, "fusion": {"best_block": 0.3}}
    config = PipelineConfig.model_validate(parts)
    assert (config.evidence, config.fusion.best_block) == ({"name": "tfidf"}, 0.3)


@pytest.mark.parametrize("name", ["first", "last", "random", "spread", "learned"])
def test_what_does_not_go_by_terms_is_no_evidence(name: str) -> None:
    with pytest.raises(ValueError, match=f"selector '{name}' is no evidence, .* take one of: bm25, tfidf"):
        PipelineConfig.model_validate({"evidence": {"name": name}})


def test_scores_of_bm25_bundles_are_what_they_were(pipeline: Pipeline) -> None:
    """The selector's scores, which were the evidence before it had a name of its own."""
    query, document = pipeline.prepare_query("Which river flooded the city?"), pipeline.prepare_document("A river. A city. " * 60)
    selection = pipeline.select(query, document)
    top = np.sort(selection.scores)[-3:]
    assert selection.evidence[:2].tolist() == [top[-1], top.sum() / 3]


QUIET = "The winter garden was quiet. "


@pytest.mark.parametrize(
    ("text", "chosen_by"),
    [
        (QUIET * 60 + "The river flooded.", SelectedBy.EVIDENCE),
        (QUIET * 60, SelectedBy.POSITION),
        (QUIET + "The river flooded.", None),
        (QUIET * 3, None),
        ("", None),
    ],
    ids=["the last block", "no block", "read whole", "read whole, and no block", "empty"],
)
def test_what_chose_the_blocks(pipeline: Pipeline, text: str, chosen_by: SelectedBy | None) -> None:
    assert pipeline.select(pipeline.prepare_query("river"), pipeline.prepare_document(text)).by == chosen_by


def test_a_block_that_is_read_in_part_was_chosen(pipeline: Pipeline) -> None:
    """Both blocks are taken, and there is no room for the end of the second."""
    document = pipeline.prepare_document("The river flooded. " * 21)
    query = pipeline.prepare_query("stone")
    assert document.n_blocks == 2
    assert [len(pipeline.select(query, document, budget).packed.taken) for budget in (80, 256)] == [2, 2]
    assert [pipeline.select(query, document, budget).by for budget in (80, 256)] == [SelectedBy.POSITION, None]


def test_the_model_chose_where_it_saw_all_blocks_or_those_that_stood_out(fine: Pipeline) -> None:
    """With blocks of 5 tokens; of a document without the query's words a cascade sees the first two alone."""
    cascade = make(fine.tokenizer, fine.frequencies, segmenter=fine.config.segmenter, selector={"name": "learned", "keep": 2})
    binb = make(fine.tokenizer, fine.frequencies, segmenter=fine.config.segmenter, selector={"name": "learned"})
    chosen_by = []
    for text in (QUIET * 60 + "The river flooded.", QUIET * 60):
        for pipeline in (cascade, binb):
            query, document = pipeline.prepare_query("river"), pipeline.prepare_document(text)
            chosen_by.append(select(pipeline, query, document).by)
    assert chosen_by == [SelectedBy.MODEL, SelectedBy.MODEL, SelectedBy.POSITION, SelectedBy.MODEL]
    query, document = cascade.prepare_query("river"), cascade.prepare_document(QUIET * 60 + "The river flooded.")
    shortlist = cascade.shortlist(query, document)
    unasked = np.full(len(shortlist.blocks), -np.inf)
    assert cascade.select(query, document, asked=(shortlist, unasked)).by == SelectedBy.EVIDENCE


@pytest.mark.parametrize("selector", ["first", "last", "random", "spread"])
def test_what_goes_by_the_place_says_so(fine: Pipeline, selector: str) -> None:
    pipeline = make(fine.tokenizer, fine.frequencies, selector={"name": selector})
    selection = pipeline.select(pipeline.prepare_query("river"), pipeline.prepare_document(QUIET * 60 + "The river flooded."))
    assert selection.by == SelectedBy.POSITION


@pytest.fixture(scope="module")
def hybrid(tokenizer: Tokenizer, frequencies: DocumentFrequencies) -> Pipeline:
    """Terms and vectors; its table knows a few concepts."""
    config = PipelineConfig(selector={"name": "hybrid"}, encoder={"name": "static"})
    return Pipeline(config, tokenizer, frequencies, concept_table(tokenizer))


FILLER = "The committee met again and spoke about the budget of the coming season at some length, as it had done before. "
PARAPHRASE = "In case of sickness, inform the manager before nine. "


def best_block(pipeline: Pipeline, query: str, text: str) -> str:
    document = pipeline.prepare_document(text)
    selection = pipeline.select(pipeline.prepare_query(query), document)
    best = selection.taken[0]
    return text[document.starts[best] : document.ends[best]]


def test_a_paraphrase_is_found_where_no_word_is_shared(pipeline: Pipeline, hybrid: Pipeline) -> None:
    text, query = FILLER * 12 + PARAPHRASE * 3 + FILLER * 12, "Whom do I tell when I am ill?"
    assert PARAPHRASE.strip() in best_block(hybrid, query, text)
    assert PARAPHRASE.strip() not in best_block(pipeline, query, text)  # which shares no term with it


def test_an_exact_code_wins_among_blocks_that_are_nearer(tokenizer: Tokenizer) -> None:
    """Each other block is about errors, which many documents are; the one with the code says nothing of them."""
    frequencies = DocumentFrequencies(1000, {"error": 300, "mean": 400})
    config = PipelineConfig(selector={"name": "hybrid"}, encoder={"name": "static"})
    hybrid = Pipeline(config, tokenizer, frequencies, concept_table(tokenizer))
    near = "An error is an error: each failure is told as an error, and an error is a failure. " * 3
    text = near * 8 + "Message E1042 says that the printer has no paper, which somebody may put into it at once. " * 3 + near * 8
    document, query = hybrid.prepare_document(text), hybrid.prepare_query("What does error E1042 mean?")
    cosines = SELECTORS.create("vectors").scores(query, document, hybrid.frequencies)
    assert "E1042" in best_block(hybrid, "What does error E1042 mean?", text)
    assert cosines[hybrid.select(query, document).taken[0]] < cosines.max()


def test_vectors_change_nothing_but_the_selection(pipeline: Pipeline, hybrid: Pipeline) -> None:
    text, query = FILLER * 3 + "The river flooded the old bridge. " + FILLER * 3, "river flood"
    ours, plain = (one.select(one.prepare_query(query), one.prepare_document(text, "Floods")) for one in (hybrid, pipeline))
    np.testing.assert_array_equal(ours.evidence, plain.evidence)
    assert ours.packed.ids.tolist() == plain.packed.ids.tolist()
    assert pipeline.prepare_query(query).vector is None
    assert pipeline.prepare_document(text).vectors is None


def test_a_querys_vector_is_of_more_than_the_model_reads(hybrid: Pipeline) -> None:
    query = hybrid.prepare_query("season " * 300 + "sick")
    assert query.truncated
    assert query.vector is not None
    assert query.vector.tolist() == [1, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("selector", [{"name": "hybrid"}, {"name": "learned", "by": {"name": "vectors"}}])
def test_vectors_need_an_encoder(selector: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=f"selector '{selector['name']}' compares vectors: name an encoder"):
        PipelineConfig(selector=selector)
    assert PipelineConfig(selector=selector, encoder={"name": "static"}).encoder == {"name": "static", "file": "token_vectors.npz"}


def test_tokens_are_compared_where_they_have_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    parts: dict[str, Any] = {"selector": {"name": "hybrid", "soft": 1}, "encoder": {"name": "static"}}
    assert PipelineConfig(**parts).selector["soft"] == 1
    monkeypatch.setattr(Static, "of_tokens", False)
    with pytest.raises(ValidationError, match="selector 'hybrid' compares tokens, and encoder 'static' has none"):
        PipelineConfig(**parts)
    assert PipelineConfig(selector={"name": "hybrid"}, encoder={"name": "static"}).encoder is not None


def test_a_pipeline_is_given_the_encoder_that_it_describes(tokenizer: Tokenizer, frequencies: DocumentFrequencies) -> None:
    with pytest.raises(ValueError, match=r"the description has \{.*static.*\} encoder, and none is given"):
        Pipeline(PipelineConfig(encoder={"name": "static"}), tokenizer, frequencies)
    with pytest.raises(ValueError, match="the description has no encoder"):
        Pipeline(PipelineConfig(), tokenizer, frequencies, concept_table(tokenizer))


def test_documents_of_another_pipeline_are_told(pipeline: Pipeline, hybrid: Pipeline) -> None:
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


def test_the_nearest_token_alone_finds_a_paraphrase(tokenizer: Tokenizer, frequencies: DocumentFrequencies) -> None:
    """Of a long block that says much else, one kindred word for each of the query's is enough."""
    config = PipelineConfig(selector={"name": "hybrid", "vectors": 0, "soft": 1}, encoder={"name": "static"})
    soft = Pipeline(config, tokenizer, frequencies, concept_table(tokenizer))
    text, query = FILLER * 12 + PARAPHRASE * 3 + FILLER * 12, "Whom do I tell when I am ill?"
    assert PARAPHRASE.strip() in best_block(soft, query, text)
    prepared = soft.prepare_query(query)
    assert prepared.similar is not None
    assert prepared.similar.shape == (2, tokenizer.vocabulary_size)
    document = soft.prepare_document(text)
    assert soft.select(prepared, document).scores.max() == pytest.approx(1, abs=1e-5)
    assert soft.select(soft.prepare_query(""), document).scores.tolist() == [0] * document.n_blocks
    assert soft.select(prepared, soft.prepare_document("")).scores.shape == (0,)
