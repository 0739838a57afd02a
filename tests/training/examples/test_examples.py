"""What of a document a ranker is trained on, against slow, obvious versions."""

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from keyblock.packing import Packed, pack
from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument, PreparedQuery
from keyblock.selectors import SELECTORS
from training.data import examples as module
from training.data.collection import Collection
from training.data.examples import (
    EXAMPLES,
    LEFT_OUT,
    Gold,
    Pair,
    Preparation,
    Row,
    Segments,
    Selected,
    Shown,
    gold_overlaps,
    token_labels,
)
from training.data.types import Document, Span

Asked = tuple[PreparedQuery, list[Pair]]
NOTHING = np.zeros(0, dtype=np.int32)
BUDGET = 40
NAMES = ["river-3", "river-0", "stone-2"]


def ids_of(row: Row) -> list[list[list[int]]]:
    return [[packed.ids.tolist() for packed in document] for document in row]


def ids_of_single_block(pipeline: Pipeline, query: PreparedQuery, document: PreparedDocument, block: int) -> list[int]:
    """The ids of the query with one block; of a document without that block, the query alone."""
    order = np.asarray([block] if block < document.n_blocks else [], dtype=np.intp)
    return pack(query, document, order, pipeline.tokenizer.template, BUDGET).ids.tolist()


def never(sequences: Sequence[Packed]) -> NDArray[np.float32]:
    raise AssertionError("nothing here needs the model")


def taste(ids: list[int]) -> float:
    """A model's logit of these tokens; no two sequences in these tests have the same logit."""
    return zlib.crc32(np.asarray(ids, dtype=np.int32).tobytes()) % 100_003 / 1000 - 50


def by_taste(sequences: Sequence[Packed]) -> NDArray[np.float32]:
    return np.asarray([taste(packed.ids.tolist()) for packed in sequences], dtype=np.float32)


@pytest.fixture
def query_and_pairs(toy: Collection, toy_pipeline: Pipeline) -> Asked:
    """A query with three documents of the toy, the relevant one first, and one without a token."""
    preparation = Preparation(toy, toy_pipeline)
    pairs = [preparation.pair("river?", name) for name in NAMES]
    return preparation.query("river?"), [*pairs, Pair(toy_pipeline.prepare_document("", "River"))]


def document_of(*bounds: int) -> PreparedDocument:
    """A document with blocks between these offsets; the tests need nothing else of it."""
    places = np.asarray(list(pairwise(bounds)), dtype=np.int32).reshape(-1, 2)
    return PreparedDocument(NOTHING, places, places[:, 0], places[:, 1], np.zeros(0, np.int64), NOTHING, NOTHING)


@given(
    st.lists(st.integers(0, 60), max_size=8).map(sorted),
    st.lists(st.tuples(st.integers(0, 70), st.integers(0, 30)), max_size=3),
)
def test_overlaps_equal_a_slow_count(bounds: list[int], passages: list[tuple[int, int]]) -> None:
    """Of the characters of each block, those in a passage, passage by passage."""
    gold = [Span("d", start, start + length) for start, length in passages]
    overlaps = gold_overlaps(document_of(*bounds), gold)
    slow = [sum(len({*range(a, b)} & {*range(span.start, span.end)}) for span in gold) for a, b in pairwise(bounds)]
    assert overlaps.tolist() == slow


def test_gold_is_the_block_with_the_largest_overlap(query_and_pairs: Asked, toy_pipeline: Pipeline) -> None:
    """Hand-worked: a passage over the last 3 characters of block 0 and the first 5 of block 1 is block 1's.

    If another passage has 3 characters of block 0, that one has 6 of both.
    """
    query, (river, *_, empty) = query_and_pairs
    (alone,) = Gold(toy_pipeline).rows(Gold(toy_pipeline).prepare(query, [empty], BUDGET, np.random.default_rng(0)), never)
    assert ids_of(alone) == [[ids_of_single_block(toy_pipeline, query, empty.document, 0)]], "a document without a block"
    edge = int(river.document.ends[0])
    passage = Span("river-3", edge - 3, int(river.document.starts[1]) + 5)
    for gold, block in (([passage], 1), ([passage._replace(start=edge - 30)], 0), ([passage, Span("river-3", 4, 7)], 0)):
        prepared = Gold(toy_pipeline).prepare(query, [Pair(river.document, gold)], BUDGET, np.random.default_rng(0))
        (row,) = Gold(toy_pipeline).rows(prepared, never)
        assert ids_of(row) == [[ids_of_single_block(toy_pipeline, query, river.document, block)]]


def test_without_a_gold_passage_any_block_is_drawn(query_and_pairs: Asked, toy_pipeline: Pipeline) -> None:
    query, (_, river, *_) = query_and_pairs
    rng, blocks = np.random.default_rng(0), river.document.n_blocks
    rows = [Gold(toy_pipeline).prepare(query, [river], BUDGET, rng) for _ in range(60)]
    drawn = Counter(tuple(ids_of(row)[0][0]) for (row,) in rows if isinstance(row, list))
    assert blocks >= 2
    assert set(drawn) == {tuple(ids_of_single_block(toy_pipeline, query, river.document, block)) for block in range(blocks)}
    assert min(drawn.values()) > 60 / blocks / 3
    short = Pair(toy_pipeline.prepare_document("A river."))
    only = [[[ids_of_single_block(toy_pipeline, query, short.document, 0)]]] * 9
    assert [ids_of(Gold(toy_pipeline).prepare(query, [short], BUDGET, rng)[0]) for _ in only] == only


def numbered(sentences: int) -> str:
    return " ".join(f"River number {n} is wide." for n in range(sentences))


def sentence_by_sentence(change_pipeline: Callable[..., Pipeline], keep: int = 0) -> Pipeline:
    """A block is a sentence; the first ones are shortlisted."""
    selector = {"name": "learned", "keep": keep, "by": {"name": "first"}}
    return change_pipeline(selector=selector, segmenter={"name": "sentences", "block_tokens": 8})


@pytest.mark.parametrize(("keep", "counts"), [(0, [5, 3, 7, 0]), (4, [4, 3, 4, 0])])
def test_segments_are_compared_place_by_place(
    query_and_pairs: Asked, change_pipeline: Callable[..., Pipeline], keep: int, counts: list[int]
) -> None:
    """Row j holds the documents' j-th blocks, and the last one again of a document that has no more."""
    pipeline, (query, _) = sentence_by_sentence(change_pipeline, keep), query_and_pairs
    documents = [pipeline.prepare_document(numbered(n)) for n in (5, 3, 7, 0)]
    examples = Segments(pipeline)
    rows = examples.rows(examples.prepare(query, [Pair(d) for d in documents], BUDGET, np.random.default_rng(0)), never)
    assert len(rows) == max(counts)
    for j, row in enumerate(rows):
        last = [max(n, 1) - 1 for n in counts]
        assert ids_of(row) == [[ids_of_single_block(pipeline, query, d, min(j, n))] for d, n in zip(documents, last, strict=True)]


def test_some_of_the_segments_are_drawn(query_and_pairs: Asked, change_pipeline: Callable[..., Pipeline]) -> None:
    """The same ones for the same step, others for another; over many steps each as often as another."""
    pipeline, (query, _) = sentence_by_sentence(change_pipeline), query_and_pairs
    document = pipeline.prepare_document(numbered(7))
    examples, rng = Segments(pipeline, drawn=2), np.random.default_rng(0)
    waiting = [examples.prepare(query, [Pair(document)], BUDGET, rng) for _ in range(140)]
    drawn = [[ids_of(row) for row in examples.rows(of, never)] for of in waiting]
    assert drawn[0] == [ids_of(row) for row in examples.rows(waiting[0], never)]
    places = [str([[ids_of_single_block(pipeline, query, document, block)]]) for block in range(7)]
    found = Counter(places.index(str(row)) for rows in drawn for row in rows)
    assert set(found) == set(range(7))
    assert min(found.values()) > 20, "40 of 280 are each one's share"
    assert all(len({str(row) for row in rows}) == 2 for rows in drawn)


@pytest.mark.parametrize(
    "parts",
    [{}, {"aggregator": {"name": "max"}}, {"aggregator": {"name": "states", "passages": 2}}, {"selector": {"name": "first"}}],
    ids=["joint", "max", "states", "first"],
)
def test_what_needs_no_model_is_selected_at_once(
    query_and_pairs: Asked, change_pipeline: Callable[..., Pipeline], parts: dict[str, Any]
) -> None:
    pipeline, (query, pairs) = change_pipeline(**parts), query_and_pairs
    prepared = Selected(pipeline).prepare(query, pairs, BUDGET, np.random.default_rng(0))
    assert isinstance(prepared, list)
    (row,) = Selected(pipeline).rows(prepared, never)
    expected = [[p.ids.tolist() for p in pipeline.select(query, pair.document, BUDGET).sequences] for pair in pairs]
    assert ids_of(row)[:3] == expected[:3]
    assert ids_of(row)[3] == [ids_of_single_block(pipeline, query, pairs[3].document, 0)], "the query alone, where there is nothing"


def test_a_gold_passage_that_was_not_selected_is_shown(query_and_pairs: Asked, change_pipeline: Callable[..., Pipeline]) -> None:
    """The first blocks are selected: gold of another block, or of the one that is cut, brings it to the front."""
    pipeline, (query, (river, *others)) = change_pipeline(selector={"name": "first"}), query_and_pairs
    starts, ends = (places.tolist() for places in (river.document.starts, river.document.ends))
    last = len(starts) - 1
    (selected,) = Selected(pipeline).prepare(query, [river, *others], BUDGET, np.random.default_rng(0))
    assert last not in selected[0][0].taken
    cut = int(selected[0][0].taken[-1])
    assert selected[0][0].cut
    for block in (0, cut, last):
        pairs = [Pair(river.document, [Span("river-3", starts[block] + 2, ends[block])]), *others]
        (row,) = Shown(pipeline).prepare(query, pairs, BUDGET, np.random.default_rng(0))
        assert ids_of(row)[1:] == ids_of(selected)[1:]
        assert block in row[0][0].taken
        assert (ids_of(row)[0] == ids_of(selected)[0]) == (block == 0)
        assert len(row[0][0].ids) <= BUDGET


@pytest.mark.parametrize("keep", [0, 2])
def test_what_the_model_selects_waits_for_it(query_and_pairs: Asked, change_pipeline: Callable[..., Pipeline], keep: int) -> None:
    """One passage a document: of the shortlist the one that the model scores best."""
    pipeline = change_pipeline(
        selector={"name": "learned", "keep": keep, "by": {"name": "last"}}, aggregator={"name": "max", "passages": 1}
    )
    query, pairs = query_and_pairs
    prepared = Selected(pipeline).prepare(query, pairs, BUDGET, np.random.default_rng(0))
    (row,) = Selected(pipeline).rows(prepared, by_taste)
    for pair, document in zip(pairs, ids_of(row), strict=True):
        blocks = range(pair.document.n_blocks)[-keep:] if keep else range(pair.document.n_blocks)
        ways = [ids_of_single_block(pipeline, query, pair.document, block) for block in blocks] or [
            ids_of_single_block(pipeline, query, pair.document, 0)
        ]
        assert document == [max(ways, key=taste)]


def test_costs_are_known_before_the_model_chooses(change_pipeline: Callable[..., Pipeline]) -> None:
    joint, five = change_pipeline(), change_pipeline(aggregator={"name": "mean", "passages": 5})
    learned = change_pipeline(selector={"name": "learned", "keep": 7})
    assert {name: of(joint).sequences for name, of in EXAMPLES.items()} == {"selected": 1, "shown": 1, "gold": 1, "segments": 16}
    assert (Selected(five).sequences, Gold(five).sequences) == (5, 1)
    assert Selected(change_pipeline(aggregator={"name": "mean"})).sequences == 16
    assert (Segments(learned).sequences, Segments(learned, drawn=3).sequences) == (7, 3)


BM25 = SELECTORS.create("bm25")


def test_gold_passages_go_with_their_documents(preparation: Preparation, toy: Collection) -> None:
    assert preparation.pair("river?", "river-3").gold == toy.spans["river?"]
    assert preparation.pair("river?", "river-3").document is preparation.document("river-3")
    assert preparation.pair("river?", "river-0").gold == []
    assert preparation.pair("river!", "river-3").gold == [], "of another query"


def test_no_more_documents_are_kept_than_there_is_room_for(
    toy: Collection, toy_pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT", 2)
    made: list[str] = []

    def prepare(document: Document) -> PreparedDocument:
        made.append(document.doc_id)
        return toy_pipeline.prepare_document(document.text, document.title)

    preparation = Preparation(toy, toy_pipeline, prepare)
    for doc_id in ("river-0", "river-1", "river-0", "river-2", "river-1", "river-0"):
        assert preparation.document(doc_id).n_blocks
    assert made == ["river-0", "river-1", "river-2", "river-0"]


def test_empty_queries_and_documents_are_packed_like_any_other(toy_copy: Path, toy_pipeline: Pipeline) -> None:
    with (toy_copy / "queries.jsonl").open("a", encoding="utf-8") as queries:
        queries.write('{"_id": "empty", "text": ""}\n')
    collection = Collection(toy_copy)
    collection.documents["void"] = collection.documents["river-0"]._replace(doc_id="void", title="", text=" \n ")
    preparation = Preparation(collection, toy_pipeline)
    assert preparation.pack("empty", "void", 96).ids.tolist() == [101, 102, 102]
    assert len(preparation.pack("empty", "river-0", 96).ids) > 20
    assert preparation.best_block("river?", "void", BM25) == 0
    assert preparation.best_block("empty", "river-0", BM25) == 0


TEXT = "The mill stood by the river. It ground corn for the town. In 1850 the river burst its banks. The mill was lost."
GOLD = "In 1850 the river burst its banks."


def labelled(pipeline: Pipeline, gold: str, budget: int, blocks: list[int] | None = None) -> list[tuple[str, int]]:
    """Each token of the sequence with its label."""
    query, document = pipeline.prepare_query("river banks"), pipeline.prepare_document(TEXT, "mills")
    packed = pipeline.select(query, document, budget).packed
    spans = [Span("mill", TEXT.index(gold), TEXT.index(gold) + len(gold))] if gold else []
    labels = token_labels(pipeline, document, TEXT, spans, packed)
    words = [pipeline.tokenizer.backend.id_to_token(int(one)) for one in packed.ids]
    return list(zip(words, labels.tolist(), strict=True))


@pytest.mark.parametrize("gold", [GOLD, GOLD.removesuffix(".")])
def test_the_tokens_of_the_gold_passage_are_marked_and_those_of_query_and_title_left_out(toy_pipeline: Pipeline, gold: str) -> None:
    found = labelled(toy_pipeline, gold, 96)
    read = toy_pipeline.tokenizer.backend.encode(gold, add_special_tokens=False).tokens
    assert [word for word, label in found if label == 1] == read
    n_query = len(toy_pipeline.prepare_query("river banks").token_ids)
    assert [label for _, label in found[: n_query + 3]] == [LEFT_OUT] * (n_query + 3)  # [CLS] query [SEP] and the title
    assert found[-1][1] == LEFT_OUT  # [SEP]


def test_without_a_gold_passage_no_token_answers(toy_pipeline: Pipeline) -> None:
    assert {label for _, label in labelled(toy_pipeline, "", 96)} == {0, LEFT_OUT}


@pytest.mark.parametrize("budget", range(60, 80))
def test_of_a_block_that_is_cut_the_tokens_that_are_left_keep_their_labels(toy_pipeline: Pipeline, budget: int) -> None:
    """The slow version: a token is marked where the text says so at the same place of the document."""
    query, document = toy_pipeline.prepare_query("river banks"), toy_pipeline.prepare_document(TEXT * 3)
    text = TEXT * 3
    span = Span("mill", text.index(GOLD), text.index(GOLD) + len(GOLD))
    packed = toy_pipeline.select(query, document, budget).packed
    labels = token_labels(toy_pipeline, document, text, [span], packed)
    starts, ends = toy_pipeline.reader.read([text])[0].places()
    expected, at = [], packed.split
    for block in np.sort(packed.taken).tolist():
        tokens = range(*document.bounds[block].tolist())
        room = len(packed.ids) - 1 - packed.split
        kept = list(tokens) if block != packed.taken[-1] else None
        others = sum(len(range(*document.bounds[b].tolist())) for b in packed.taken[:-1].tolist())
        kept = kept if kept is not None else list(tokens)[: room - others]
        assert document.token_ids[kept].tolist() == packed.ids[at : at + len(kept)].tolist()
        expected += [int(starts[t] < span.end and ends[t] > span.start) for t in kept]
        at += len(kept)
    assert labels[packed.split : at].tolist() == expected
