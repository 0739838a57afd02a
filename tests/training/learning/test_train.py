"""From a recipe to a run directory: what it holds, what is refused, and a run that was killed."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file
from transformers import BertConfig, BertModel

from keyblock.pipeline import Pipeline
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
from training.learn.train import fit_again, train
from training.model.cross_encoder import CrossEncoder
from training.model.families import load_ranker
from training.model.starting import weights_digest
from training.recipe import Recipe, RecipeError, load_recipe

pytestmark = pytest.mark.usefixtures("undrawn")
ROOT = Path(__file__).resolve().parents[3]
OFTEN = "checkpoint_every=2"  # of a run that is killed often; the recipe's checkpoints are of steps 20 and 40
TORN = '{"step": 28, "ti'  # a line of the log as a kill within a write leaves it
KILLED = """
import os, signal, sys
from transformers import BertModel  # imported once, for every fork
from training.commands.train import main as train_main
from training.learn.loop import Trainer

write = Trainer._log

def train(dies_in):
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    lines = 0

    def log(trainer, **what):
        nonlocal lines
        write(trainer, **what)
        lines += 1
        die(dies_in(lines))

    Trainer._log = log
    die(dies_in(lines))
    os._exit(train_main(sys.argv[1:]))

def die(seconds):
    if seconds == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    elif seconds:  # of the processor: the moment is no other one on a busy machine, and its signal ends a process as SIGKILL does
        signal.setitimer(signal.ITIMER_PROF, seconds)

for more, seconds in ((0, 0.12), (5, 0.011), (1, 0), (8, 0.012)):  # lines of its log, and then some time
    status = train(lambda lines: seconds if lines == more else None)
    if status >= 0:
        sys.exit(f"ended by itself with status {status}")
"""
Make = Callable[..., Recipe]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoint" / "model.safetensors") | load_file(run / "checkpoint" / "head.safetensors")


def losses(run: Path) -> list[float]:
    return [r["loss"] for r in read_log(run) if "loss" in r]


@pytest.mark.timeout(400)  # it waits for a process that imports PyTorch; on a busy machine that takes its time
def test_killed_at_any_moment_again_and_again(toy_run: Path, toy_path: Path, recipe_file: Path, tmp_path: Path) -> None:
    """SIGKILL while it prepares, steps, measures or saves; the same command still ends in the weights of a run left alone."""
    run = tmp_path / "often"
    command = [str(recipe_file), "--collection", str(toy_path), "--out", str(run), "--set", OFTEN]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "KEYBLOCK_CACHE": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", KILLED, *command], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    with (run / "log.jsonl").open("a", encoding="utf-8") as log:
        log.write(TORN)
    assert train_main(command) == 0
    lines = (run / "log.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [record["step"] for record in (json.loads(line) for line in lines if line != TORN) if "loss" in record]
    again = [before - step + 1 for before, step in pairwise(steps) if step <= before]
    assert again
    assert max(again) <= 2, "steps that a kill costs"
    assert losses(run) == losses(toy_run)
    resumed, whole = weights(run), weights(toy_run)
    assert resumed.keys() == whole.keys()
    assert [name for name in whole if not torch.equal(resumed[name], whole[name])] == []


SMALL = {"steps": 2, "budgets": {80: 1.0}, "tokens_per_step": 640}


TrainToy = Callable[..., Path]


@pytest.fixture
def train_toy(toy: Collection, recipe_tree: dict[str, Any], tmp_path: Path) -> TrainToy:
    """Trains on the toy, two small steps if nothing else is said; gives the run."""

    def run(name: str = "run", on: Sequence[Collection] = (toy,), cache: Path | None = None, **changes: Any) -> Path:
        pipeline = recipe_tree["pipeline"] | changes.pop("pipeline", {})
        recipe = Recipe.model_validate(recipe_tree | SMALL | changes | {"pipeline": pipeline})
        train(recipe, on, tmp_path / name, cache)
        return tmp_path / name

    return run


def test_a_run_that_starts_from_another(train_toy: TrainToy, toy_run: Path) -> None:
    """With a rate of almost nothing it stays what the other was; with another seed its own head would be another."""
    run = train_toy(init=str(toy_run), seed=5, optimizer={"encoder_lr": 1e-12, "head_lr": 1e-12, "weight_decay": 0.0})
    mine, start = weights(run), weights(toy_run)
    for name, tensor in start.items():
        torch.testing.assert_close(mine[name], tensor, rtol=0, atol=1e-9)
    began = json.loads((run / "provenance.json").read_text(encoding="utf-8"))["starts"]
    assert began == {"init": {"path": str(toy_run), "sha256": weights_digest(toy_run)}}
    measured = {r["step"]: r["dev"]["toy"]["RR@10"] for r in read_log(run) if "dev" in r}
    assert measured == {0: 1.0, 2: 1.0}, "what it begins from is measured, too"


def test_it_starts_from_the_other_runs_best_and_resumed_no_longer_needs_it(train_toy: TrainToy, run_copy: Path) -> None:
    shutil.copytree(run_copy / "checkpoint", run_copy / "best")
    (run_copy / "checkpoint" / "model.safetensors").unlink()
    train_toy(init=str(run_copy))
    shutil.rmtree(run_copy)
    assert len(losses(train_toy(init=str(run_copy)))) == 2


def test_a_start_of_another_architecture(train_toy: TrainToy, wider: str, toy_run: Path) -> None:
    with pytest.raises(ValueError, match="checkpoint: cannot be read as an encoder"):
        train_toy(init=str(toy_run), backbone=wider)


def test_another_model_selects(train_toy: TrainToy, toy_run: Path, run_copy: Path) -> None:
    """It is copied into the run, which then stands by itself."""
    learned = {"selector": {"name": "learned"}}
    train_toy(pipeline=learned, selector_run=str(run_copy))
    shutil.rmtree(run_copy)
    run = train_toy(pipeline=learned, selector_run=str(run_copy))
    held = {path.name for path in (toy_run / "checkpoint").iterdir()}
    assert {path.name for path in (run / "chooser").iterdir()} == held - {"state.pt", "tokenizer.json"}
    assert losses(train_toy("alone", pipeline=learned)) != losses(run)


def test_a_student_keeps_named_layers_of_its_teacher_and_learns_its_states(train_toy: TrainToy, run_copy: Path) -> None:
    """The teacher's second layer alone, and its head: what is left to learn is what the first layer did."""
    how = {"teacher": str(run_copy), "loss": "squared", "among": "documents", "states": 1.0}
    run = train_toy(reshape={"layers": (1,)}, init=str(run_copy), distillation=how, steps=30)
    found = losses(run)
    assert sum(found[-5:]) < 0.9 * sum(found[:5])
    assert load_ranker(run / "checkpoint").transformer.config.num_hidden_layers == 1


@pytest.fixture
def wider(tiny_backbone: Path, tmp_path: Path) -> str:
    """A backbone of another width, and of more positions."""
    sizes = {"hidden_size": 48, "max_position_embeddings": 256}
    BertModel(BertConfig.from_pretrained(tiny_backbone, **sizes)).save_pretrained(tmp_path / "wider")
    shutil.copy(tiny_backbone / "tokenizer.json", tmp_path / "wider")
    return str(tmp_path / "wider")


def test_a_teacher_of_another_width_has_no_states_to_learn(train_toy: TrainToy, run_copy: Path, wider: str) -> None:
    how = {"teacher": str(run_copy), "among": "documents", "states": 1.0}
    said = r"of one width, 48 here; the teacher .* is a cross_encoder of width \d+: leave states out"
    with pytest.raises(RecipeError, match=said):
        train_toy(backbone=wider, distillation=how)


def test_a_teacher_of_fewer_positions_is_refused(
    train_toy: TrainToy, recipe_tree: dict[str, Any], run_copy: Path, wider: str
) -> None:
    packing = recipe_tree["pipeline"]["packing"] | {"budget_range": [32, 200]}
    parts = {"aggregator": {"name": "max"}, "packing": packing}
    with pytest.raises(RecipeError, match=r"reach 200 tokens, the teacher .* reads 128 at most"):
        train_toy(backbone=wider, pipeline=parts, distillation={"teacher": str(run_copy)})


@pytest.mark.parametrize("key", ["init", "selector_run", "distillation"])
def test_a_model_of_another_tokenizer_is_refused(train_toy: TrainToy, run_copy: Path, key: str) -> None:
    tokenizer = json.loads((run_copy / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["normalizer"]["lowercase"] = False
    (run_copy / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    named: Any = {"teacher": str(run_copy), "among": "documents"} if key == "distillation" else str(run_copy)
    with pytest.raises(ValueError, match=rf"{key}(\.teacher)? .*: its tokenizer is not that of the backbone"):
        train_toy(pipeline={"selector": {"name": "learned"}}, **{key: named})


def test_prepared_documents_are_found_again(train_toy: TrainToy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run prepares none, and draws the same."""
    first = train_toy("first", cache=tmp_path / "cache")

    def refuse(pipeline: Pipeline, texts: list[str], titles: object = None) -> None:
        raise AssertionError(f"prepared again: {texts}")

    monkeypatch.setattr(Pipeline, "prepare_documents", refuse)
    assert losses(train_toy("second", cache=tmp_path / "cache")) == losses(first)


@pytest.fixture
def other(toy_copy: Path) -> Collection:
    """The toy by another name."""
    return Collection(toy_copy.rename(toy_copy.with_name("other")))


def test_several_collections_and_their_shares(train_toy: TrainToy, toy: Collection, other: Collection) -> None:
    """One with a share of nothing is measured, too."""
    run = train_toy(on=[toy, other], mixture={"toy": 1, "other": 0})
    assert list(read_log(run)[-1]["dev"]) == ["toy", "other"]
    assert sorted(json.loads((run / "provenance.json").read_text(encoding="utf-8"))["collections"]) == ["other", "toy"]


def test_what_was_not_fitted_anew_is_not_said_to_be(
    run_copy: Path, toy: Collection, other: Collection, make_recipe: Callable[..., Recipe], recipe_tree: dict[str, Any]
) -> None:
    """The run's model marks no tokens, so the spans are still those of what it began from."""
    begun = make_recipe(pipeline=recipe_tree["pipeline"] | {"fusion": {"logit": 0.5}, "spans": {"mark": 2.0}})
    kept, fitted = fit_again(begun, [toy, other], run_copy)
    assert kept.startswith("keeps the spans of ")
    assert fitted.startswith("fusion: fitted anew on dev")


def test_a_mixture_must_name_the_collections_given(train_toy: TrainToy, toy: Collection, other: Collection, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"mixture names sea, toy, but the collections are toy; .* --set mixture=\{\}"):
        train_toy(mixture={"toy": 1, "sea": 1})
    with pytest.raises(RecipeError, match="mixture names toy, but the collections are other, toy"):
        train_toy(on=[toy, other], mixture={"toy": 1})
    with pytest.raises(RecipeError, match="marked names sea: no collection with gold passages among toy, so the marker would"):
        train_toy(model={"name": "cross_encoder", "marks": 4}, marks=1.0, marked=["sea"])
    with pytest.raises(CollectionError, match="one name"):
        train_toy(on=[toy, toy])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("key", ["budgets", "budget_range"])
def test_budgets_beyond_the_backbones_positions(train_toy: TrainToy, recipe_tree: dict[str, Any], tmp_path: Path, key: str) -> None:
    packing = recipe_tree["pipeline"]["packing"] | {"budget_range": [32, 129]}
    changes: dict[str, Any] = {"budgets": {80: 1, 129: 0.1}} if key == "budgets" else {"pipeline": {"packing": packing}}
    with pytest.raises(RecipeError, match=r"budgets or budget_range reach 129 tokens, .* reads 128 at most"):
        train_toy(**changes)
    assert not (tmp_path / "run").exists()


def test_training_on_gold_passages_asks_for_them(train_toy: TrainToy, toy_copy: Path, tmp_path: Path) -> None:
    """Without them every block would be drawn at random, and nothing would say so."""
    (toy_copy / "spans.jsonl.gz").unlink()
    with pytest.raises(RecipeError, match="toy has no gold passages"):
        train_toy(on=[Collection(toy_copy)], examples="gold")
    assert not (tmp_path / "run").exists()


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


@pytest.fixture
def with_table(make_recipe: Make, recipe_tree: dict[str, Any]) -> Callable[[Path], Recipe]:
    """The recipe with an encoder that reads a table from a file."""
    return lambda file: make_recipe(pipeline=recipe_tree["pipeline"] | {"encoder": {"name": "static", "file": str(file)}})


def test_a_run_keeps_the_table_that_it_began_with(
    toy: Collection, tiny_backbone: Path, tmp_path: Path, with_table: Callable[[Path], Recipe]
) -> None:
    """Another file in its place, or none, changes nothing of a run that goes on."""
    file, run = tmp_path / "mine.npz", tmp_path / "run"
    run.mkdir()
    tokenizer = Tokenizer(tiny_backbone / "tokenizer.json")
    concept_table(tokenizer, [["river"], ["stone"]]).write(file)
    recipe = with_table(file)
    first = make_pipeline(recipe, [toy], recipe.backbone, run)
    assert first.config.encoder == {"name": "static", "file": "token_vectors.npz"}
    concept_table(tokenizer, [["river"]]).write(file)
    second = make_pipeline(recipe, [toy], recipe.backbone, run)
    file.unlink()
    third = make_pipeline(recipe, [toy], recipe.backbone, run)
    assert [one.encoder and one.encoder.dimensions for one in (first, second, third)] == [2, 2, 2]


def test_what_a_try_that_never_began_left_is_forgotten(
    toy: Collection, tiny_backbone: Path, tmp_path: Path, with_table: Callable[[Path], Recipe]
) -> None:
    """Its table of vectors, its chooser and its teacher."""
    for kept in (CHOOSER, TEACHER):
        CrossEncoder.from_backbone(str(tiny_backbone)).save(tmp_path / "run" / kept)
    files, tokenizer = (tmp_path / "one.npz", tmp_path / "other.npz"), Tokenizer(tiny_backbone / "tokenizer.json")
    concept_table(tokenizer, [["river"], ["stone"]]).write(files[0])
    concept_table(tokenizer, [["river"]]).write(files[1])
    for file, dimensions in zip(files, (2, 1), strict=True):
        recipe = with_table(file)
        begin(recipe, [toy], recipe.backbone, tmp_path / "run")
        encoder = load_run_pipeline(tmp_path / "run").encoder
        assert encoder is not None
        assert encoder.dimensions == dimensions
    assert load_chooser(tmp_path / "run") is None
    assert not (tmp_path / "run" / TEACHER).exists()


def test_a_missing_table_is_named(toy: Collection, tmp_path: Path, with_table: Callable[[Path], Recipe]) -> None:
    recipe = with_table(tmp_path / "absent.npz")
    with pytest.raises(RecipeError, match=r"pipeline.encoder: .*absent.npz cannot be read \(No such file or directory\); give its"):
        make_pipeline(recipe, [toy], recipe.backbone, tmp_path)


def test_other_collections_on_the_same_run_are_refused(
    toy: Collection, other: Collection, run_copy: Path, make_recipe: Make
) -> None:
    with pytest.raises(RecipeError, match="began on the collections toy, in that order, not on other, toy"):
        train(make_recipe(), [other, toy], run_copy)


def test_two_trainings_in_one_directory(
    toy_path: Path, recipe_file: Path, run_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [str(recipe_file), "--collection", str(toy_path), "--out", str(run_copy)]
    with locked(run_copy):
        assert train_main(command) == 2
    assert "toy-run: another process is training into it" in capsys.readouterr().err
    kept = run_copy / "recipe.yaml"
    tree = yaml.safe_load(kept.read_text(encoding="utf-8"))
    del tree["negatives"]["hard_by"], tree["reshape"]  # as it was written before there were these keys
    kept.write_text(yaml.safe_dump(tree), encoding="utf-8")
    assert train_main(command) == 0


def test_a_directory_where_nothing_began_takes_any_recipe(toy: Collection, tmp_path: Path, make_recipe: Make) -> None:
    with pytest.raises(CollectionError, match=r"has no splits/nowhere"):
        train(make_recipe(split="nowhere", name="first try"), [toy], tmp_path)
    train(make_recipe(steps=1, budgets={80: 1}, tokens_per_step=320), [toy], tmp_path)
    assert load_recipe(tmp_path / "recipe.yaml").name == "toy"
    assert sum("loss" in record for record in read_log(tmp_path)) == 1


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
