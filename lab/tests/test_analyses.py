"""The papers' analyses on a collection of four documents, worked by hand; vectors are stand-ins of two dimensions."""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from keyblock.text.tokenizer import Tokenizer
from lab.studies import analyses
from tests.training.collections.passages import write_collection
from training.data.files import write_run
from training.derive.wordnet import Entry, Sense

TEXTS = {
    "far": "It rained all day. Nobody went out. The bridge over the river fell. The river rose.",
    "near": "The river is long. Boats go by. Children play there. It is calm.",
    "none": "The town has a market. Trains stop twice a day.",
    "blank": "",
}


def vector(text: str) -> list[float]:
    """Texts about the bridge are near the query, those about the river less near."""
    return [1.0, 0.0] if "bridge" in text else [0.6, 0.8] if "river" in text else [0.0, 1.0]


@pytest.fixture
def corpus(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> analyses.Corpus:
    def encode(several: Any) -> list[np.ndarray]:
        (texts,) = several
        words = [tokenizer.backend.decode(texts.token_ids[start:end].tolist()) for start, end in texts.bounds.tolist()]
        return [np.asarray([vector(text) for text in words], np.float32)]

    understanding = SimpleNamespace(encoder=SimpleNamespace(encode=encode))
    bundle = SimpleNamespace(tokenizer=tokenizer, pipeline=SimpleNamespace(understanding=understanding))
    monkeypatch.setattr(analyses, "BUNDLE", bundle)
    path = write_collection(tmp_path / "c", TEXTS, {"q": ["far"]}, {"dev": ["q"]})
    write_run({"q": {"near": 3.0, "none": 2.0, "far": 1.0}}, path / "run.dev.bm25.trec.gz", "bm25")
    made = analyses.Corpus(path, analyses.Store(tmp_path / "kept"), 5, "sentences")
    made.collection.queries["q"] = "river bridge"
    return made


@pytest.mark.parametrize(
    ("selection", "size", "how", "score"),
    [
        ("FIRST", 2, "max", 0.0),  # rain, and nobody went out
        ("FIRST", 3, "max", 1.0),  # the bridge
        ("FIRST", 64, "sum", 1.6),  # 0 + 0 + 1 + .6
        ("TERMF", 1, "max", 1.0),  # two of the query's words
        ("TERMF", 2, "sum", 1.6),
        ("TERMF", 2, "mean", (2 * 1.0 + 1 * 0.6) / 3),  # weighed by the query's words
        ("FIRST", 2, "mean", 0.0),  # none has one: the plain mean
        ("FIRST+TERMF", 2, "sum", 1.0),  # the first sentence, then the best of the others
    ],
)
def test_documents_by_their_sentences(corpus: analyses.Corpus, selection: str, size: int, how: str, score: float) -> None:
    assert analyses.by_sentences(corpus, selection, size, how)("q", "far") == pytest.approx(score, abs=2e-3)


def test_a_document_without_a_sentence_comes_last(corpus: analyses.Corpus) -> None:
    assert analyses.by_sentences(corpus, "FIRST", 2, "max")("q", "blank") == -np.inf


def test_only_the_best_candidates_are_ranked_again(corpus: analyses.Corpus) -> None:
    """The relevant one is third: as given 1 / log2(4); ranked again first; where only two are ranked again, third."""
    score = analyses.by_sentences(corpus, "FIRST", 3, "max")
    assert [analyses.measured(corpus, score, depth).tolist() for depth in (0, 2, 3)] == [[0.5], [0.5], [1.0]]


def test_vectors_are_computed_once(corpus: analyses.Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    before = corpus.cosines("q", "far")
    monkeypatch.setattr(analyses, "BUNDLE", None)
    assert corpus.cosines("q", "far").tolist() == before.tolist()
    assert corpus.cosines("q", "far", np.asarray([2])).tolist() == before[[2]].tolist()


def test_the_full_text_is_the_documents_opening(corpus: analyses.Corpus) -> None:
    """Fewer than 126 tokens are one block, whose vector is that of the whole text; the query "news of q" is near no river."""
    opening = corpus.cut("opening")
    assert [opening.cosines("q", name).tolist() for name in ("far", "none")] == [[0.0], [1.0]]


SENSES = {1: Sense(("bridge", "span"), ""), 2: Sense(("river", "Stream", "large stream"), ""), 3: Sense(("river", "flow"), "")}


class TwoWords:
    """WordNet of two words: a bridge is a span, and a river a stream or a flow."""

    lemmas = ("bridge", "cadent", "ice_cream", "river", "span", "sunlight")

    def entries(self, word: str) -> list[Entry]:
        return {"bridges": [Entry("bridge", "n", (1,))], "river": [Entry("river", "n", (2, 3))]}.get(word, [])

    def sense(self, entry: Entry) -> Sense:
        return SENSES[entry.offsets[0]]


def test_synonyms_of_all_senses_and_as_many_random_words() -> None:
    """Single words alone, without the query's own and their lemmas, as in KeyB's Table 2."""
    found, drawn = analyses.expansions(["bridges", "river", "unknown"], TwoWords(), random.Random(0))  # type: ignore[arg-type]
    assert found == ["flow", "span", "stream"]
    assert sorted(drawn) == ["cadent", "span", "sunlight"]


def test_relevant_documents_and_others_have_enough_blocks(corpus: analyses.Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus.queries, corpus.run["r"] = ["q", "r"], {"far": 1.0}
    corpus.collection.qrels["r"] = {"near": 1}
    assert corpus.pairs == {}  # four sentences are fewer than fifteen
    del corpus.pairs
    monkeypatch.setattr(analyses, "FEWEST", 4)
    assert corpus.pairs == {"q": ("far", ["near"]), "r": ("near", ["far"])}
