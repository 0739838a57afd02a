"""A run of keyblock-vectors on the toy."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from keyblock.bundle import Bundle, load_bundle
from keyblock.encoders import TokenTable
from keyblock.selectors import SELECTORS
from training.data.collection import Collection
from training.data.examples import Preparation
from training.data.types import CollectionError
from training.evaluate.selection import Passages
from training.learn.vectors import VectorsRecipe
from training.learn.vectors_run import PARTS, Chosen, VectorsRun, parts_of_hybrid, teacher_texts, write_hybrid_bundle

RECIPE = VectorsRecipe(dimensions=8, distil_steps=3, steps=5, distil_texts=8, step_questions=4)


@pytest.fixture
def make(toy: Collection, toy_bundle: Bundle, tmp_path: Path) -> Callable[..., VectorsRun]:
    return lambda recipe=RECIPE: VectorsRun(toy_bundle, [toy], ("train", "dev"), recipe, tmp_path / "run")


def test_a_run_leaves_a_table_and_figures(make: Callable[..., VectorsRun], tiny_backbone: Path) -> None:
    run = make()
    figures = run.figures(str(tiny_backbone))
    table = TokenTable.read(run.path / "token_vectors.npz")
    assert (table.vocabulary_size, table.dimensions) == (30522, 8)
    assert figures["weights"].keys() == set(PARTS)
    assert figures["dev"]["bm25"]["toy"] == {"queries": 4, "of_all": 1.0, "of_least_overlap": 1.0}
    assert json.loads((run.path / "vectors.json").read_text(encoding="utf-8")) == figures
    written = (run.path / "token_vectors.npz").stat().st_mtime_ns
    assert run.figures("nowhere") == figures, "what is finished is not trained again"
    assert (run.path / "token_vectors.npz").stat().st_mtime_ns == written


def test_weights_of_ones_own_are_measured(make: Callable[..., VectorsRun], tiny_backbone: Path) -> None:
    """By terms alone the hybrid finds what BM25 finds."""
    run = make()
    run.figures(str(tiny_backbone))
    by_terms = run.figures("nowhere", {"terms": 2})
    assert by_terms["weights"] == {"terms": 2.0, "vectors": 0.0, "exact": 0.0, "soft": 0.0}
    assert by_terms["dev"]["hybrid"] == by_terms["dev"]["bm25"]
    assert run.figures("nowhere") == by_terms
    with pytest.raises(ValueError, match="the hybrid has no weight 'words'; it has terms, vectors, exact, soft"):
        run.figures("nowhere", {"words": 1})


def test_the_same_numbers_give_the_same_table(
    make: Callable[..., VectorsRun], tiny_backbone: Path, toy: Collection, toy_bundle: Bundle, tmp_path: Path
) -> None:
    first = make()
    first.figures(str(tiny_backbone))
    again = VectorsRun(toy_bundle, [toy], ("train", "dev"), RECIPE, tmp_path / "again")
    again.figures(str(tiny_backbone))
    tables = [TokenTable.read(run.path / "token_vectors.npz") for run in (first, again)]
    np.testing.assert_array_equal(tables[0].table, tables[1].table)


def test_another_recipe_is_refused(make: Callable[..., VectorsRun], tiny_backbone: Path) -> None:
    make().figures(str(tiny_backbone))
    with pytest.raises(ValueError, match="is a run with other numbers"):
        make(RECIPE.model_copy(update={"steps": 6})).figures(str(tiny_backbone))


def test_a_bundle_with_the_hybrid(make: Callable[..., VectorsRun], tiny_backbone: Path, toy_bundle: Bundle, tmp_path: Path) -> None:
    """It has the table and the weights; its graph is the same file, and its evidence is what the fusion was learned with."""
    run = make()
    figures = run.figures(str(tiny_backbone))
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


def test_parts_add_up_to_the_hybrid(
    make: Callable[..., VectorsRun], tiny_backbone: Path, toy_bundle: Bundle, tmp_path: Path
) -> None:
    make().figures(str(tiny_backbone))
    weights = [0.5, 2.0, 0.25, 1.5]
    write_hybrid_bundle(toy_bundle, make().path, tmp_path / "hybrid", {"selector": {"name": "hybrid", "soft": 1.0}})
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
    first, second, _ = passages.questions
    read = teacher_texts(passages, len(first.right) + 1)
    assert read.tolist() == sorted([*first.blocks, first.query, *second.blocks, second.query])
    assert teacher_texts(passages, 0).tolist() == []
