"""From a recipe to a run directory: what it holds, what is refused, and a run that was killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from keyblock.pipeline import Pipeline
from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from keyblock.text.frequencies import DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer
from training.collections.collection import Collection
from training.collections.first_stage import candidate_pool
from training.collections.lines import open_text
from training.collections.types import CollectionError, FileError
from training.commands.train import main as train_main
from training.evaluation.curves import read_log
from training.evaluation.ranking import CHOOSER, load_chooser
from training.learning.lock import alone_in
from training.learning.train import begin, fastest_attention, make_pipeline, train
from training.models.cross_encoder import CrossEncoder
from training.recipe import Recipe, RecipeError, load_recipe

ROOT = Path(__file__).resolve().parents[3]
KILLED_AT = 27  # the recipe's checkpoints are of steps 20 and 40
OFTEN = 2  # steps between the checkpoints of a run that is killed often
KILLED = f"""
import os, random, signal, sys, time
from pathlib import Path
from transformers import BertModel  # imported once, for every fork
from training.commands.train import main as train_main
from training.learning.loop import Trainer

recipe, collection, once, often = sys.argv[1:]
log, chance, write = Path(often) / "log.jsonl", random.Random(3), Trainer._log

def last_words(trainer, **what):
    write(trainer, **what)
    if trainer.step == {KILLED_AT}:
        os.kill(os.getpid(), signal.SIGKILL)

def train(run, *settings):
    child = os.fork()
    if not child:
        os._exit(train_main([recipe, "--collection", collection, "--out", run, *settings]))
    return child

def status(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def lines():
    return log.read_bytes().count(b"\\n") if log.exists() else 0

Trainer._log = last_words
print(status(train(once)), flush=True)
Trainer._log = write
for more in (0, 5, 1, 8, 0, 3, 9):
    child, before, ended = train(often, "--set", "checkpoint_every={OFTEN}"), lines(), 0
    while lines() < before + more and not ended:
        time.sleep(0.002)
        ended, how = os.waitpid(child, os.WNOHANG)
    if ended:
        sys.exit(f"ended by itself with status {{how}}")
    time.sleep(chance.uniform(0, 0.02 if more else 0.5))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
print(status(train(often, "--set", "checkpoint_every={OFTEN}")), flush=True)
"""
Make = Callable[..., Recipe]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoint" / "model.safetensors") | load_file(run / "checkpoint" / "head.safetensors")


def losses(run: Path) -> list[float]:
    return [r["loss"] for r in read_log(run) if "loss" in r]


@pytest.fixture(scope="module")
def killed(toy_path: Path, recipe_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed `once`, and one that was killed `often` and then left to end."""
    folder = tmp_path_factory.mktemp("killed")
    arguments = [str(recipe_file), str(toy_path), str(folder / "once"), str(folder / "often")]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "KEYBLOCK_CACHE": str(folder / "cache")}
    done = subprocess.run([sys.executable, "-c", KILLED, *arguments], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == [str(-signal.SIGKILL), "0"]
    return folder


@pytest.mark.timeout(400)  # the first of both waits for a process that imports PyTorch; on a busy machine that takes its time
def test_a_killed_run_ends_in_the_same_weights(toy_run: Path, toy_path: Path, recipe_file: Path, killed: Path) -> None:
    """SIGKILL to a real process between two checkpoints, then the same command again."""
    run = killed / "once"
    assert len(losses(run)) == KILLED_AT
    with (run / "log.jsonl").open("a", encoding="utf-8") as log:
        log.write('{"step": 28, "ti')  # as a kill within a write leaves it
    assert train_main([str(recipe_file), "--collection", str(toy_path), "--out", str(run)]) == 0
    assert losses(run) == losses(toy_run)
    resumed, whole = weights(run), weights(toy_run)
    assert resumed.keys() == whole.keys()
    assert [name for name in whole if not torch.equal(resumed[name], whole[name])] == []


@pytest.mark.timeout(400)
def test_killed_at_any_moment_again_and_again(toy_run: Path, killed: Path) -> None:
    """SIGKILL whenever it falls: while it prepares, steps, measures or saves; it still ends in the weights of a run left alone."""
    run = killed / "often"
    lines = (run / "log.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [record["step"] for record in map(json.loads, lines) if "loss" in record]
    again = [before - step + 1 for before, step in pairwise(steps) if step <= before]
    assert again
    assert max(again) <= OFTEN  # steps that a kill costs
    resumed, whole = weights(run), weights(toy_run)
    assert [name for name in whole if not torch.equal(resumed[name], whole[name])] == []
    assert losses(run) == losses(toy_run)


def test_a_full_disk_ends_in_one_line_and_with_room_it_goes_on(
    toy_run: Path,
    toy_path: Path,
    recipe_file: Path,
    tmp_path: Path,
    small_disk: Callable[[int | None], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No file of a megabyte can be written: checkpoints are larger."""
    arguments = [str(recipe_file), "--collection", str(toy_path), "--out", str(tmp_path / "run")]
    small_disk(1_000_000)
    assert train_main(arguments) == 2
    small_disk(None)
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert "checkpoint: could not be written, what was there stays; is the disk full?" in said.splitlines()[-1]
    assert not [path for path in (tmp_path / "run").iterdir() if path.name.startswith("checkpoint")]
    assert train_main(arguments) == 0
    resumed, whole = weights(tmp_path / "run"), weights(toy_run)
    assert [name for name in whole if not torch.equal(resumed[name], whole[name])] == []


SMALL = {"steps": 2, "budgets": {80: 1.0}, "tokens_per_step": 640}


def test_a_run_that_starts_from_another(toy: Collection, toy_run: Path, tmp_path: Path, make_recipe: Make) -> None:
    """With a rate of almost nothing it stays what the other was; with another seed its own head would be another."""
    still = {"encoder_lr": 1e-12, "head_lr": 1e-12, "weight_decay": 0.0}
    recipe = make_recipe(init=str(toy_run), seed=5, optimizer=still, **SMALL)
    train(recipe, [toy], tmp_path / "run")
    mine, start = weights(tmp_path / "run"), weights(toy_run)
    for name, tensor in start.items():
        torch.testing.assert_close(mine[name], tensor, rtol=0, atol=1e-9)
    assert [r["dev"]["toy"]["RR@10"] for r in read_log(tmp_path / "run") if "dev" in r] == [1.0]


def test_it_starts_from_the_other_runs_best(toy: Collection, run_copy: Path, tmp_path: Path, make_recipe: Make) -> None:
    shutil.copytree(run_copy / "checkpoint", run_copy / "best")
    (run_copy / "checkpoint" / "model.safetensors").unlink()
    train(make_recipe(init=str(run_copy), **SMALL), [toy], tmp_path / "run")
    assert len(losses(tmp_path / "run")) == 2


def test_a_resumed_run_no_longer_needs_what_it_started_from(
    toy: Collection, run_copy: Path, tmp_path: Path, make_recipe: Make
) -> None:
    recipe = make_recipe(init=str(run_copy), **SMALL)
    train(recipe, [toy], tmp_path / "run")
    shutil.rmtree(run_copy)
    train(recipe, [toy], tmp_path / "run")
    assert len(losses(tmp_path / "run")) == 2


def test_a_start_that_is_none(toy: Collection, backbone: Path, tmp_path: Path, make_recipe: Make, toy_run: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere: has no tokenizer\.json, so it is neither a run"):
        train(make_recipe(init=str(tmp_path / "nowhere")), [toy], tmp_path / "run")
    with pytest.raises(ValueError, match="checkpoint: cannot be read as an encoder"):
        train(make_recipe(init=str(toy_run), backbone=str(backbone)), [toy], tmp_path / "other")


def test_another_model_selects(toy: Collection, toy_run: Path, run_copy: Path, tmp_path: Path, make_recipe: Make) -> None:
    """It is copied into the run, which then stands by itself."""
    pipeline = make_recipe().pipeline.model_dump() | {"selector": {"name": "learned"}}
    recipe = make_recipe(pipeline=pipeline, selector_run=str(run_copy), **SMALL)
    train(recipe, [toy], tmp_path / "run")
    shutil.rmtree(run_copy)
    train(recipe, [toy], tmp_path / "run")
    assert {path.name for path in (tmp_path / "run" / "chooser").iterdir()} == {
        path.name for path in (toy_run / "checkpoint").iterdir() if path.name not in ("state.pt", "tokenizer.json")
    }
    train(make_recipe(pipeline=pipeline, **SMALL), [toy], tmp_path / "alone")
    assert losses(tmp_path / "alone") != losses(tmp_path / "run")


@pytest.mark.parametrize("key", ["init", "selector_run"])
def test_a_model_of_another_tokenizer_is_refused(
    toy: Collection, run_copy: Path, tmp_path: Path, make_recipe: Make, key: str
) -> None:
    tokenizer = json.loads((run_copy / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["normalizer"]["lowercase"] = False
    (run_copy / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    pipeline = make_recipe().pipeline.model_dump() | {"selector": {"name": "learned"}}
    with pytest.raises(ValueError, match=f"{key} .*: its tokenizer is not that of the backbone"):
        train(make_recipe(pipeline=pipeline, **SMALL, **{key: str(run_copy)}), [toy], tmp_path / "run")


def test_tensorboard_is_written_when_asked_for(toy_path: Path, recipe_file: Path, tmp_path: Path) -> None:
    command = f"{recipe_file} --collection {toy_path} --set steps=2 --set evaluate_every=1 --tensorboard --out {tmp_path}/run"
    assert train_main(command.split()) == 0
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert [event.value for event in events.Scalars("loss")] == pytest.approx(losses(tmp_path / "run"))
    assert [event.step for event in events.Scalars("dev/toy/RR@10")] == [1, 2]


def test_prepared_documents_are_found_again(
    toy: Collection, tmp_path: Path, make_recipe: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second run prepares none, and draws the same."""
    recipe = make_recipe(**SMALL)
    train(recipe, [toy], tmp_path / "first", cache=tmp_path / "cache")

    def refuse(pipeline: Pipeline, texts: list[str], titles: object = None) -> None:
        raise AssertionError(f"prepared again: {texts}")

    monkeypatch.setattr(Pipeline, "prepare_documents", refuse)
    train(recipe, [toy], tmp_path / "second", cache=tmp_path / "cache")
    assert losses(tmp_path / "second") == losses(tmp_path / "first")


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


def test_another_recipe_on_the_same_run_is_refused(toy: Collection, run_copy: Path, make_recipe: Make) -> None:
    before = (run_copy / "recipe.yaml").read_bytes()
    with pytest.raises(RecipeError, match="holds a run of another recipe; choose another --out"):
        train(make_recipe(seed=1), [toy], run_copy)
    assert (run_copy / "recipe.yaml").read_bytes() == before


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


def test_a_run_whose_provenance_is_damaged(toy: Collection, run_copy: Path, make_recipe: Make) -> None:
    for damage in ('{"coll', "[]"):
        (run_copy / "provenance.json").write_text(damage, encoding="utf-8")
        with pytest.raises(FileError, match=r"provenance\.json: damaged, no JSON"):
            train(make_recipe(), [toy], run_copy)


def test_two_trainings_in_one_directory(
    toy_path: Path, recipe_file: Path, run_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [str(recipe_file), "--collection", str(toy_path), "--out", str(run_copy)]
    with alone_in(run_copy):
        assert train_main(command) == 2
    assert "toy-run: another process is training into it" in capsys.readouterr().err
    assert train_main(command) == 0


def test_a_directory_where_nothing_began_takes_any_recipe(toy: Collection, tmp_path: Path, make_recipe: Make) -> None:
    with pytest.raises(CollectionError, match=r"has no run\.nowhere"):
        train(make_recipe(split="nowhere", name="first try"), [toy], tmp_path)
    train(make_recipe(steps=1, budgets={80: 1}, tokens_per_step=320), [toy], tmp_path)
    assert load_recipe(tmp_path / "recipe.yaml").name == "toy"
    assert len(losses(tmp_path)) == 1


def test_several_collections_and_their_shares(toy: Collection, toy_copy: Path, tmp_path: Path, make_recipe: Make) -> None:
    """The second has a share of nothing: it is measured and never drawn."""
    other = Collection(toy_copy.rename(toy_copy.with_name("other")))
    small = {"steps": 2, "budgets": {80: 1.0}, "tokens_per_step": 640}
    train(make_recipe(mixture={"toy": 1, "other": 0}, **small), [toy, other], tmp_path / "both")
    train(make_recipe(mixture={"toy": 1}, **small), [toy], tmp_path / "one")
    assert list(read_log(tmp_path / "both")[-1]["dev"]) == ["toy", "other"]
    assert sorted(json.loads((tmp_path / "both" / "provenance.json").read_text(encoding="utf-8"))["collections"]) == [
        "other",
        "toy",
    ]


@pytest.mark.parametrize("mixture", [{"toy": 1, "sea": 1}, {"sea": 1}])
def test_a_mixture_must_name_the_collections_given(
    toy: Collection, tmp_path: Path, make_recipe: Make, mixture: dict[str, float]
) -> None:
    with pytest.raises(RecipeError, match=r"mixture names sea.*, but the collections are toy; .* --set mixture=\{\}"):
        train(make_recipe(mixture=mixture), [toy], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_collection_left_out_of_the_mixture(toy: Collection, toy_copy: Path, tmp_path: Path, make_recipe: Make) -> None:
    other = Collection(toy_copy.rename(toy_copy.with_name("other")))
    with pytest.raises(RecipeError, match="mixture names toy, but the collections are other, toy"):
        train(make_recipe(mixture={"toy": 1}), [toy, other], tmp_path)
    with pytest.raises(CollectionError, match="one name"):
        train(make_recipe(), [toy, toy], tmp_path)


@pytest.mark.parametrize("key", ["budgets", "budget_range"])
def test_budgets_beyond_the_backbones_positions(
    toy: Collection, tmp_path: Path, make_recipe: Make, recipe_tree: dict[str, Any], key: str
) -> None:
    packing = recipe_tree["pipeline"]["packing"]
    changes = (
        {"budgets": {80: 1, 129: 0.1}} if key == "budgets" else {"pipeline": {"packing": packing | {"budget_range": [32, 129]}}}
    )
    with pytest.raises(RecipeError, match=r"budgets or budget_range reach 129 tokens, .* reads 128 at most"):
        train(make_recipe(**changes), [toy], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_attention_of_a_device() -> None:
    assert fastest_attention(torch.device("cpu")) == "keyblock_cpu"
    assert fastest_attention(torch.device("cuda")) == "sdpa"


def test_training_on_gold_passages_asks_for_them(make_recipe: Callable[..., Recipe], toy_copy: Path, tmp_path: Path) -> None:
    """Without them every block would be drawn at random, and nothing would say so."""
    (toy_copy / "spans.jsonl.gz").unlink()
    with pytest.raises(RecipeError, match="toy has no gold passages"):
        train(make_recipe(examples="gold"), [Collection(toy_copy)], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_chooser_of_a_try_that_never_began_is_not_kept(
    make_recipe: Callable[..., Recipe], toy: Collection, tiny_backbone: Path, tmp_path: Path
) -> None:
    CrossEncoder.from_backbone(str(tiny_backbone)).save(tmp_path / CHOOSER)
    begin(make_recipe(), [toy], str(tiny_backbone), tmp_path)
    assert load_chooser(tmp_path) is None
