"""Escalation by doubt: what is doubtful, what the model is asked, and answers in other words that are read because of it."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from keyblock.bundle import load_bundle
from keyblock.description import PipelineConfig
from keyblock.escalation import certainty, shares, spread
from keyblock.packing import Packed
from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument
from keyblock.runtime.model import GraphModel
from keyblock.scoring import questions, select_documents
from keyblock.selection import Selection
from keyblock.selectors import SelectedBy
from keyblock.text.frequencies import DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer

DATA = Path(__file__).resolve().parent.parent / "data"
EMBEDDED = Path(__file__).resolve().parents[2] / "models" / "default"
QUIET = "The winter garden was quiet that morning. "
SICK = "In case of sickness, notify your teacher."


def test_certainty_by_hand() -> None:
    """Of an idf mass of 4, the best block that was taken holds 3; one that was not taken holds all."""
    found = np.asarray([[True, False, True], [False, True, True]])
    idf = np.asarray([3.0, 1.0])
    assert certainty(found, idf, np.asarray([0, 1])) == 0.75
    assert certainty(found, idf, np.asarray([1])) == 0.25
    assert certainty(found, idf, np.zeros(0, np.intp)) == 0
    assert certainty(np.zeros((0, 3), np.bool_), np.zeros(0), np.asarray([0])) == 0


def test_shares_by_hand() -> None:
    assert shares([10, 10], [5, 5], 2, 1000) == [5, 5], "all blocks where the tokens do"
    assert shares([10, 10], [2, 20], 2, 100) == [2, 8], "what a short document does not need goes to the other"
    assert shares([10, 10, 10], [9, 9, 9], 4, 100) == [5, 5, 0], "the first in the order given have their least"
    assert shares([10, 10], [5, 5], 2, 60, beside=10) == [2, 2]
    assert shares([10], [5], 2, 0) == [0]


@given(st.lists(st.tuples(st.integers(1, 90), st.integers(1, 40)), max_size=20), st.integers(1, 9), st.integers(0, 5000))
def test_shares_keep_the_bound_and_the_order_given(documents: list[tuple[int, int]], least: int, tokens: int) -> None:
    costs, sizes = [cost for cost, _ in documents], [size for _, size in documents]
    granted = shares(costs, sizes, least, tokens)
    assert sum(cost * count for cost, count in zip(costs, granted, strict=True)) <= tokens
    asked = [count > 0 for count in granted]
    assert asked == sorted(asked, reverse=True)
    assert all(min(least, size) <= count <= size for count, size in zip(granted, sizes, strict=True) if count)


def test_spread_by_hand() -> None:
    """The two best of ten blocks, then the middles of the rest's two halves."""
    order = np.asarray([7, 0, 1, 2, 3, 4, 5, 6, 8, 9])
    assert spread(order, 2, 4).tolist() == [0, 3, 7, 8]
    assert spread(order, 2, 2).tolist() == [0, 7]
    assert spread(order, 2, 10).tolist() == list(range(10))


@given(st.permutations(range(17)), st.integers(1, 17), st.integers(1, 30))
def test_spread_has_the_best_and_no_block_twice(order: list[int], least: int, count: int) -> None:
    blocks = spread(np.asarray(order), least, count).tolist()
    assert blocks == sorted(set(blocks))
    assert set(order[:least]) <= set(blocks)
    assert len(blocks) == min(max(count, least), 17)


def escalating(tokenizer: Tokenizer, frequencies: DocumentFrequencies, **escalation: float | None) -> Pipeline:
    return Pipeline(PipelineConfig.model_validate({"escalation": escalation}), tokenizer, frequencies)


def test_the_model_finds_what_the_words_do_not(tokenizer: Tokenizer, frequencies: DocumentFrequencies) -> None:
    """A model that knows sickness is illness. The first document answers; the second names the river, so there is no doubt."""
    pipeline = escalating(tokenizer, frequencies, below=0.3, tokens=100_000)
    (sickness,) = tokenizer.ids("sickness").tolist()
    asked: list[int] = []

    def choose(sequences: Sequence[Packed]) -> NDArray[np.float32]:
        asked.append(len(sequences))
        return np.asarray([float(sickness in packed.ids) for packed in sequences], np.float32)

    texts = [QUIET * 60 + SICK + QUIET * 60, QUIET * 60 + "The river flooded.", QUIET]
    documents = pipeline.prepare_documents(texts)
    query = pipeline.prepare_query("river ill?")
    plain = [pipeline.select(query, document) for document in documents]
    assert [selection.doubtful for selection in plain] == [True, False, False]
    selections = select_documents(pipeline, query, documents, choose)
    assert [selection.by for selection in selections] == [SelectedBy.MODEL, SelectedBy.EVIDENCE, None]
    assert sickness in selections[0].packed.ids
    assert sickness not in plain[0].packed.ids
    assert asked == [documents[0].n_blocks]
    assert selections[1].packed.ids.tolist() == plain[1].packed.ids.tolist()


def test_blocks_that_were_scored_in_doubt_may_be_read_at_more_tokens(
    tokenizer: Tokenizer, frequencies: DocumentFrequencies
) -> None:
    pipeline = escalating(tokenizer, frequencies, below=0.5, tokens=100_000, budget=256)
    documents = pipeline.prepare_documents([QUIET * 60])
    query = pipeline.prepare_query("river")

    def choose(sequences: Sequence[Packed]) -> NDArray[np.float32]:
        return np.arange(len(sequences), dtype=np.float32)

    (longer,) = select_documents(pipeline, query, documents, choose)
    (bounded,) = select_documents(pipeline, query, documents, choose, budget=100)
    assert (len(longer.packed.ids), len(bounded.packed.ids)) == (256, 100)
    (shortlist,) = questions(pipeline, query, documents, tokens=400)
    assert shortlist is not None
    assert sum(len(packed.ids) for packed in shortlist.sequences) <= 400 - (256 - 128)


def test_descriptions_without_it_never_ask(pipeline: Pipeline) -> None:
    document, query = pipeline.prepare_document(QUIET * 60), pipeline.prepare_query("river")
    assert PipelineConfig().escalation is None
    assert not pipeline.select(query, document).doubtful
    with pytest.raises(ValueError, match="describes no escalation"):
        questions(pipeline, query, [])


@pytest.mark.parametrize(
    ("description", "said"),
    [
        ({"selector": {"name": "learned"}, "escalation": {}}, "selector 'learned' asks the model about every document"),
        ({"escalation": {"budget": 300}}, "escalation.budget 300 lies outside budget_range 64 to 256"),
        ({"escalation": {"below": 2}}, "less than or equal to 1"),
    ],
    ids=["learned", "budget", "below"],
)
def test_a_wrong_description_is_named(description: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        PipelineConfig.model_validate(description)


def buried(answer: str, seed: int) -> str:
    """The answer between paragraphs of about 880 words of other text."""
    drawn, words = random.Random(seed), 0
    paragraphs: list[str] = []
    other = (DATA / "filler.txt").read_text(encoding="utf-8").splitlines()
    for paragraph in drawn.sample(other, len(other)):
        paragraphs.append(paragraph)
        words += len(paragraph.split())
        if words >= 880:
            break
    paragraphs.insert(drawn.randrange(1, len(paragraphs)), answer)
    return "\n".join(paragraphs)


def reads(text: str, answer: str, document: PreparedDocument, selection: Selection) -> bool:
    """Whether the chosen blocks hold every character of the answer."""
    read = np.zeros(len(text), np.bool_)
    for block in selection.taken.tolist():
        read[document.starts[block] : document.ends[block]] = True
    start = text.index(answer)
    return bool(read[start : start + len(answer)].all())


WORDS_ALONE = {"segmenter": {"name": "cogltx"}, "selector": {"name": "bm25"}, "encoder": None}


def doubtful_pairs() -> list[dict[str, str]]:
    return [json.loads(line) for line in (DATA / "doubt.jsonl").read_text(encoding="utf-8").splitlines()]


def test_the_embedded_bundle_reads_answers_in_other_words() -> None:
    """Twelve everyday questions whose answers share no word with them; nobody asks the model. BM25 alone reads none (see below)."""
    pipeline = load_bundle(EMBEDDED).pipeline
    read = 0
    for number, pair in enumerate(doubtful_pairs()):
        text = buried(pair["answer"], number)
        document = pipeline.prepare_document(text)
        read += reads(text, pair["answer"], document, pipeline.select(pipeline.prepare_query(pair["question"]), document))
    assert read >= 5


def test_answers_in_other_words_are_read() -> None:
    """The same twelve, where words alone select; the embedded model chooses, at 256 tokens a document."""
    bundle = load_bundle(EMBEDDED)
    pairs = doubtful_pairs()
    model = GraphModel.open(bundle, "cpu", 1, "fp32")
    escalation = {"escalation": {"below": 0.6, "tokens": 4096, "budget": 256}, "cascade": None}
    own = bundle.manifest.pipeline.model_dump()
    wider = {"packing": own["packing"] | {"budget_range": (96, 256)}}
    description = own | WORDS_ALONE | escalation | wider
    pipeline = Pipeline(PipelineConfig.model_validate(description), bundle.tokenizer, bundle.frequencies)
    before = after = 0
    for number, pair in enumerate(pairs):
        text = buried(pair["answer"], number)
        document, query = pipeline.prepare_document(text), pipeline.prepare_query(pair["question"])
        before += reads(text, pair["answer"], document, pipeline.select(query, document))
        (selection,) = select_documents(pipeline, query, [document], model.choose)
        after += reads(text, pair["answer"], document, selection)
        assert selection.by == SelectedBy.MODEL
    assert before == 0
    assert after >= 6
