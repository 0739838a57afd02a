"""A run of keyblock-vectors on the toy."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from keyblock.bundle import Bundle, load_bundle
from keyblock.encoders import TokenTable
from keyblock.pipeline import Pipeline
from keyblock.selectors import SELECTORS
from lab.commands.vectors import main as vectors_main
from lab.hybrid import (
    PARTS,
    Chosen,
    Judged,
    VectorsRun,
    figures,
    judge,
    learned_weights,
    parts_of_hybrid,
    teacher_texts,
    term_overlap,
    token_rows,
    write_hybrid_bundle,
)
from lab.token_vectors import Passages, VectorsRecipe
from training.data.collection import Collection
from training.data.examples import Preparation
from training.data.types import CollectionError
from training.model.sentence_encoder import SentenceEncoder

Trained = tuple[VectorsRun, dict[str, Any]]
RECIPE = VectorsRecipe(dimensions=8, distil_steps=3, steps=5, distil_texts=8, step_questions=4)


@pytest.fixture(scope="module")
def trained(toy: Collection, toy_bundle: Bundle, tiny_backbone: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A run, and the figures that it gave."""
    run = VectorsRun(toy_bundle, [toy], ("train", "dev"), RECIPE, tmp_path_factory.mktemp("vectors") / "run")
    return run, run.figures(str(tiny_backbone))


def test_a_run_leaves_a_table_and_figures(trained: Trained) -> None:
    run, figures = trained
    table = TokenTable.read(run.path / "token_vectors.npz")
    assert (table.vocabulary_size, table.dimensions) == (30522, 8)
    assert figures["weights"].keys() == set(PARTS)
    assert figures["dev"]["bm25"]["toy"] == {"queries": 4, "of_all": 1.0, "of_least_overlap": 1.0}
    assert json.loads((run.path / "vectors.json").read_text(encoding="utf-8")) == figures
    written = (run.path / "token_vectors.npz").stat().st_mtime_ns
    assert run.figures("nowhere") == figures, "what is finished is not trained again"
    assert (run.path / "token_vectors.npz").stat().st_mtime_ns == written


def test_weights_of_ones_own_are_measured(trained: Trained, tmp_path: Path) -> None:
    """By terms alone the hybrid finds what BM25 finds."""
    run = replace(trained[0], path=shutil.copytree(trained[0].path, tmp_path / "run"))
    by_terms = run.figures("nowhere", {"terms": 2})
    assert by_terms["weights"] == {"terms": 2.0, "vectors": 0.0, "exact": 0.0, "soft": 0.0}
    assert by_terms["dev"]["hybrid"] == by_terms["dev"]["bm25"]
    assert run.figures("nowhere") == by_terms
    with pytest.raises(ValueError, match="the hybrid has no weight 'words'; it has terms, vectors, exact, soft"):
        run.figures("nowhere", {"words": 1})


def test_another_recipe_is_refused(trained: Trained) -> None:
    with pytest.raises(ValueError, match="is a run with other numbers"):
        replace(trained[0], recipe=RECIPE.model_copy(update={"steps": 6})).figures("nowhere")


def test_a_bundle_with_the_hybrid(trained: Trained, toy_bundle: Bundle, tmp_path: Path) -> None:
    """It has the table and the weights; its graph is the same file, and its evidence is what the fusion was learned with."""
    run, figures = trained
    write_hybrid_bundle(toy_bundle, run.path, tmp_path / "hybrid")
    bundle = load_bundle(tmp_path / "hybrid")
    selector = bundle.manifest.pipeline.selector
    assert selector["name"] == "hybrid"
    assert {part: selector[part] for part in PARTS} == figures["weights"]
    assert bundle.manifest.pipeline.evidence == toy_bundle.manifest.pipeline.evidence
    assert bundle.manifest.pipeline.fusion == toy_bundle.manifest.pipeline.fusion
    assert bundle.manifest.files["model.onnx"] == toy_bundle.manifest.files["model.onnx"]
    document = bundle.pipeline.prepare_document("A river ran here. The old stone bridge stands.")
    assert bundle.pipeline.select(bundle.pipeline.prepare_query("river"), document).taken[0] == 0


def test_parts_add_up_to_the_hybrid(trained: Trained, toy_bundle: Bundle, tmp_path: Path) -> None:
    weights = [0.5, 2.0, 0.25, 1.5]
    write_hybrid_bundle(toy_bundle, trained[0].path, tmp_path / "hybrid")
    pipeline = load_bundle(tmp_path / "hybrid").pipeline
    query = pipeline.prepare_query("the old river stone")
    document = pipeline.prepare_document("The old river ran here. A stone bridge. " * 30)
    parts = np.stack([part.scores(query, document, pipeline.frequencies) for part in parts_of_hybrid()])
    whole = SELECTORS.create({"name": "hybrid", **dict(zip(PARTS, weights, strict=True))})
    np.testing.assert_allclose(np.asarray(weights) @ parts, whole.scores(query, document, pipeline.frequencies), atol=1e-6)


def test_held_documents_are_not_trained_on(toy: Collection) -> None:
    chosen = Chosen.of(toy, "train", RECIPE)
    assert sorted(chosen.trained + chosen.held) == sorted(q for q in toy.split("train") if q.endswith("?"))
    assert len(chosen.held) == 1
    assert Chosen.of(toy, "train", RECIPE) == chosen
    few = Chosen.of(toy, "train", RECIPE.model_copy(update={"questions": 3}))
    assert few.trained == chosen.trained[:3]


def test_a_split_without_gold_passages(toy_copy: Path) -> None:
    (toy_copy / "splits" / "bare.txt").write_text("river!\n", encoding="utf-8")
    with pytest.raises(CollectionError, match=r"no query of split bare has a gold passage \(spans.jsonl\)"):
        Chosen.of(Collection(toy_copy), "bare", RECIPE)


def test_the_teacher_reads_whole_documents(toy: Collection, toy_bundle: Bundle) -> None:
    passages = Passages()
    passages.add("toy", Preparation(toy, toy_bundle.pipeline), ["river?", "stone?", "bridge?"])
    first, second, _ = passages.questions["toy"]
    read = teacher_texts(passages, len(first.right) + 1)
    assert read.tolist() == sorted([*first.blocks, first.query, *second.blocks, second.query])
    assert teacher_texts(passages, 0).tolist() == []


def test_tokens_of_the_same_and_of_another_vocabulary(tiny_backbone: Path) -> None:
    encoder = SentenceEncoder(str(tiny_backbone))
    own = token_rows(encoder, encoder.tokenizer)
    assert own[2314] == [101, 2314, 102]
    assert len(own) == 30522
    other = Tokenizer(models.WordLevel({"river": 0, "Stone": 1}, unk_token="river"))
    other.pre_tokenizer = pre_tokenizers.Whitespace()
    assert token_rows(encoder, other) == [encoder.tokenizer.encode("river").ids, encoder.tokenizer.encode("stone").ids]


@pytest.fixture
def preparation(toy: Collection, change_pipeline: Callable[..., Pipeline]) -> Preparation:
    return Preparation(toy, change_pipeline(segmenter={"name": "sentences", "block_tokens": 30}))


def test_questions_have_the_blocks_of_their_document(preparation: Preparation) -> None:
    passages = Passages()
    passages.add("one", preparation, ["river?", "river!", "stone?"])
    passages.add("two", preparation, ["garden?", "river?"])
    assert {name: len(of) for name, of in passages.questions.items()} == {"one": 2, "two": 2}, "river! has no gold passage"
    river, stone = passages.questions["one"]
    assert passages.texts[river.query] == "news of the river"
    document = preparation.document("river-3")
    text = preparation.collection.document("river-3").text
    assert [passages.texts[i] for i in river.blocks] == [
        text[start:end] for start, end in zip(document.starts, document.ends, strict=True)
    ]
    (gold,) = np.flatnonzero(river.right)
    assert "The answer for the river stands here." in passages.texts[river.first + gold]
    bm25 = SELECTORS.create({"name": "bm25"})
    np.testing.assert_array_equal(
        river.lexical, bm25.scores(preparation.query("river?"), document, preparation.pipeline.frequencies)
    )
    assert stone.first > river.first
    np.testing.assert_array_equal(passages.tokens[stone.query], preparation.query("stone?").token_ids)


def test_a_document_of_two_questions_stands_there_once(preparation: Preparation) -> None:
    passages = Passages()
    passages.add("one", preparation, ["river?", "stone?", "river?"])
    first, _, again = passages.questions["one"]
    assert first.first == again.first
    assert len(passages.texts) == 3 + preparation.document("river-3").n_blocks + preparation.document("stone-3").n_blocks


def test_overlap_is_the_share_of_terms_in_right_blocks(preparation: Preparation) -> None:
    """Of "news of the river" the terms are news and river; the gold block has one."""
    document, query = preparation.document("river-3"), preparation.query("river?")
    right = preparation.pipeline.selector.scores(query, document, preparation.pipeline.frequencies) > 0
    assert len(query.terms) == 2
    assert term_overlap(query, document, right) == 0.5
    assert term_overlap(query, document, ~right) == 0
    assert term_overlap(preparation.pipeline.prepare_query("of the"), document, right) == 0


def one(right: int, *scores: list[float], overlap: float = 0.5) -> Judged:
    return Judged(np.arange(len(scores[0])) == right, np.asarray(scores, dtype=np.float64), overlap)


def test_a_right_block_among_the_best_three_counts() -> None:
    judged = [one(3, [5, 4, 3, 2], overlap=0.1), *(one(2, [5, 4, 3, 2], overlap=0.9) for _ in range(19))]
    assert figures(judged, np.ones(1)) == (20, 0.95, 0.5), "of two with the least overlap, one"
    assert figures(judged, -np.ones(1)).of_all == 1
    ties = [figures([one(right, [1, 1, 1, 1])], np.ones(1)).of_all for right in (2, 3)]
    assert ties == [1, 0], "a tie falls to the earlier block"
    with pytest.raises(ValueError, match="no query has a gold passage"):
        figures([], np.ones(1))


def test_selectors_score_what_can_be_judged(toy: Collection, toy_pipeline: object) -> None:
    preparation = Preparation(toy, toy_pipeline)  # type: ignore[arg-type]
    selectors = [SELECTORS.create({"name": name}) for name in ("bm25", "first")]
    judged = judge(preparation, ["river?", "river!", "stone?"], selectors)
    assert [len(group.right) for group in judged] == [preparation.document(f"{topic}-3").n_blocks for topic in ("river", "stone")]
    np.testing.assert_array_equal(judged[0].scores[1], -np.arange(len(judged[0].right)))
    assert figures(judged, np.asarray([1.0, 0.0])).of_all == 1, "only the gold block has the topic's word"


def test_weights_make_right_blocks_most_likely() -> None:
    """No other weights of a grid make them more likely; one that says the opposite gets none."""
    rng = np.random.default_rng(5)
    groups = []
    for _ in range(60):
        right = rng.integers(6)
        signal = rng.normal(size=6) + 1.5 * (np.arange(6) == right)
        weak = rng.normal(size=6) + 0.5 * (np.arange(6) == right)
        wrong = rng.normal(size=6) - 0.5 * (np.arange(6) == right)
        groups.append(one(int(right), signal.tolist(), weak.tolist(), wrong.tolist()))
    judged = {"all": groups}

    def loss(weights: tuple[float, ...]) -> float:
        likely = [np.exp(np.asarray(weights) @ g.scores) for g in groups]
        return -float(np.mean([np.log(x[g.right].sum() / x.sum()) for x, g in zip(likely, groups, strict=True)]))

    weights = learned_weights(judged)
    assert weights[2] == 0
    assert weights[0] > weights[1] > 0
    grid = np.arange(0, 3, 0.25)
    assert loss(tuple(weights)) <= min(loss((a, b, c)) for a, b, c in product(grid, grid, (0, 0.5)))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("dimension=8", "dimension: Extra inputs are not permitted (8); there are seed, dimensions,"),
        ("dimensions=2", "dimensions: Input should be greater than or equal to 8 (2)"),
        ("dimensions", "--set dimensions: write key=value"),
    ],
)
def test_numbers_that_cannot_be(
    override: str, message: str, refused: Callable[..., str], toy_path: Path, toy_bundle: Bundle, tmp_path: Path
) -> None:
    options = ["--collection", toy_path, "--bundle", toy_bundle.path, "--out", tmp_path / "run", "--set", override]
    assert message in refused(vectors_main, *options)


def test_a_collection_without_gold_passages(
    refused: Callable[..., str], toy_copy: Path, toy_bundle: Bundle, tiny_backbone: Path, tmp_path: Path
) -> None:
    (toy_copy / "spans.jsonl.gz").unlink()
    options = ["--collection", toy_copy, "--bundle", toy_bundle.path, "--teacher", tiny_backbone, "--out", tmp_path / "run"]
    assert "no query of split train has a gold passage" in refused(vectors_main, *options)
