"""The run directory: what it holds, and what is refused."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from keyblock.text.analyzer import Analyzer, AnalyzerConfig, DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer
from tests.support.vectors import concept_table
from training.commands.train import main as train_main
from training.data.collection import Collection
from training.data.files import open_text
from training.data.first_stage import candidate_pool
from training.data.types import CollectionError
from training.evaluate.ranking import CHOOSER, TEACHER, load_chooser, load_run_pipeline
from training.learn.run_directory import begin, locked, make_pipeline
from training.learn.tracking import read_log
from training.learn.train import train
from training.model.cross_encoder import CrossEncoder
from training.recipe import Recipe, RecipeError, load_recipe

Make = Callable[..., Recipe]


def test_what_a_run_holds(toy_run: Path, recipe_tree: dict[str, Any], tiny_backbone: Path) -> None:
    held = {path.name for path in toy_run.iterdir()}
    assert held == {
        "recipe.yaml",
        "pipeline.json",
        "tokenizer.json",
        "frequencies.tsv",
        "provenance.json",
        "log.jsonl",
        "curves.png",
        "checkpoint",
    }
    assert load_recipe(toy_run / "recipe.yaml") == Recipe.model_validate(recipe_tree)
    assert (toy_run / "tokenizer.json").read_bytes() == (tiny_backbone / "tokenizer.json").read_bytes()
    provenance = json.loads((toy_run / "provenance.json").read_text(encoding="utf-8"))
    assert provenance["collections"] == {"toy": {"split": "train", "queries": 16}}
    assert Recipe.model_validate(provenance["recipe"]) == Recipe.model_validate(recipe_tree)
    assert provenance["software"]["torch"] == torch.__version__


def test_frequencies_are_counted_over_the_training_pool(toy_run: Path, toy: Collection) -> None:
    analyzer, counts = Analyzer(AnalyzerConfig()), Counter[str]()
    pool = candidate_pool(toy, "train")
    for name in pool:
        counts.update(set(analyzer.terms(f"{toy.documents[name].title} {toy.documents[name].text}")))
    table = DocumentFrequencies.read(toy_run / "frequencies.tsv")
    assert (table.n_documents, table.frequencies) == (32, {term: n for term, n in counts.items() if n > 1})
    assert table.frequencies["river"] == 4
    assert "teacher" not in table.frequencies  # dev's


def test_a_table_cut_short_by_a_crash_is_counted_again(
    toy: Collection, toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_recipe: Make
) -> None:
    real = DocumentFrequencies.write

    def crash(table: DocumentFrequencies, path: Path) -> None:
        real(table, path)
        path.write_text(path.read_text(encoding="utf-8")[:40], encoding="utf-8")
        raise KeyboardInterrupt

    recipe = make_recipe()
    with monkeypatch.context() as patch:
        patch.setattr(DocumentFrequencies, "write", crash)
        with pytest.raises(KeyboardInterrupt):
            make_pipeline(recipe, [toy], recipe.backbone, tmp_path)
    pipeline = make_pipeline(recipe, [toy], recipe.backbone, tmp_path)
    assert pipeline.frequencies.frequencies == DocumentFrequencies.read(toy_run / "frequencies.tsv").frequencies


def test_a_backbone_without_a_tokenizer_file(tiny_backbone: Path, toy: Collection, tmp_path: Path, make_recipe: Make) -> None:
    """As a model hub's older ones come: a vocabulary only."""
    old = tmp_path / "old"
    old.mkdir()
    shutil.copy(tiny_backbone / "config.json", old)
    vocabulary = json.loads((tiny_backbone / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    (old / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.__getitem__)) + "\n", encoding="utf-8")
    (tmp_path / "run").mkdir()
    pipeline = make_pipeline(make_recipe(), [toy], str(old), tmp_path / "run")
    known, text = Tokenizer(tiny_backbone / "tokenizer.json"), "An Unbelievably old river's bridge, café."
    np.testing.assert_array_equal(pipeline.tokenizer.ids(text), known.ids(text))
    assert pipeline.tokenizer.template == known.template


STATIC = {"name": "static"}


def with_encoder(make_recipe: Make, recipe_tree: dict[str, Any], file: Path) -> Recipe:
    return make_recipe(pipeline=recipe_tree["pipeline"] | {"encoder": STATIC | {"file": str(file)}})


def test_a_run_keeps_the_table_that_it_began_with(
    toy: Collection, tokenizer: Tokenizer, tmp_path: Path, make_recipe: Make, recipe_tree: dict[str, Any]
) -> None:
    """Another file in its place, or none, changes nothing of a run that goes on."""
    file, run = tmp_path / "mine.npz", tmp_path / "run"
    run.mkdir()
    concept_table(tokenizer).write(file)
    recipe = with_encoder(make_recipe, recipe_tree, file)
    first = make_pipeline(recipe, [toy], recipe.backbone, run)
    assert first.config.encoder == {"name": "static", "file": "token_vectors.npz"}
    concept_table(tokenizer, [["river"]]).write(file)
    second = make_pipeline(recipe, [toy], recipe.backbone, run)
    file.unlink()
    third = make_pipeline(recipe, [toy], recipe.backbone, run)
    assert [one.encoder and one.encoder.dimensions for one in (first, second, third)] == [6, 6, 6]


def test_a_table_of_a_try_that_never_began_is_forgotten(
    toy: Collection, tokenizer: Tokenizer, tmp_path: Path, make_recipe: Make, recipe_tree: dict[str, Any]
) -> None:
    files = tmp_path / "one.npz", tmp_path / "other.npz"
    concept_table(tokenizer).write(files[0])
    concept_table(tokenizer, [["river"]]).write(files[1])
    for file, dimensions in zip(files, (6, 1), strict=True):
        recipe = with_encoder(make_recipe, recipe_tree, file)
        begin(recipe, [toy], recipe.backbone, tmp_path / "run")
        encoder = load_run_pipeline(tmp_path / "run").encoder
        assert encoder is not None
        assert encoder.dimensions == dimensions


def test_a_missing_table_is_named(toy: Collection, tmp_path: Path, make_recipe: Make, recipe_tree: dict[str, Any]) -> None:
    recipe = with_encoder(make_recipe, recipe_tree, tmp_path / "absent.npz")
    with pytest.raises(
        RecipeError, match=r"pipeline.encoder: .*absent.npz cannot be read \(No such file or directory\); give its path"
    ):
        make_pipeline(recipe, [toy], recipe.backbone, tmp_path)


def test_a_recipe_from_before_a_key_existed_is_the_same_one(toy: Collection, run_copy: Path, make_recipe: Make) -> None:
    tree = yaml.safe_load((run_copy / "recipe.yaml").read_text(encoding="utf-8"))
    del tree["negatives"]["hard_by"]
    (run_copy / "recipe.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    log = (run_copy / "log.jsonl").read_bytes()
    train(make_recipe(), [toy], run_copy)
    assert (run_copy / "log.jsonl").read_bytes() == log


def test_other_collections_on_the_same_run_are_refused(toy: Collection, toy_copy: Path, run_copy: Path, make_recipe: Make) -> None:
    other = Collection(toy_copy.rename(toy_copy.with_name("other")))
    with pytest.raises(RecipeError, match="began on the collections toy, in that order, not on other, toy"):
        train(make_recipe(), [other, toy], run_copy)


def test_two_trainings_in_one_directory(
    toy_path: Path, recipe_file: Path, run_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [str(recipe_file), "--collection", str(toy_path), "--out", str(run_copy)]
    with locked(run_copy):
        assert train_main(command) == 2
    assert "toy-run: another process is training into it" in capsys.readouterr().err
    assert train_main(command) == 0


def test_a_directory_where_nothing_began_takes_any_recipe(toy: Collection, tmp_path: Path, make_recipe: Make) -> None:
    with pytest.raises(CollectionError, match=r"has no splits/nowhere"):
        train(make_recipe(split="nowhere", name="first try"), [toy], tmp_path)
    train(make_recipe(steps=1, budgets={80: 1}, tokens_per_step=320), [toy], tmp_path)
    assert load_recipe(tmp_path / "recipe.yaml").name == "toy"
    assert sum("loss" in record for record in read_log(tmp_path)) == 1


def test_the_chooser_of_a_try_that_never_began_is_not_kept(
    make_recipe: Callable[..., Recipe], toy: Collection, tiny_backbone: Path, tmp_path: Path
) -> None:
    for kept in (CHOOSER, TEACHER):
        CrossEncoder.from_backbone(str(tiny_backbone)).save(tmp_path / kept)
    begin(make_recipe(), [toy], str(tiny_backbone), tmp_path)
    assert load_chooser(tmp_path) is None
    assert not (tmp_path / TEACHER).exists()


def test_words_of_titles_count_too(toy_copy: Path, tmp_path: Path, make_recipe: Make) -> None:
    """A document whose title alone holds a word is among those that hold it."""
    corpus = toy_copy / "corpus.jsonl.gz"
    with open_text(corpus) as file:
        rows = [json.loads(line) | {"title": "Harbour"} for line in file]
    with open_text(corpus, "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    recipe = make_recipe()
    table = make_pipeline(recipe, [Collection(toy_copy)], recipe.backbone, tmp_path).frequencies
    assert (table.n_documents, table.frequencies["harbour"]) == (32, 32)
