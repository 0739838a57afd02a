"""BeST on the toy collection, through keyblock-train: its iterations, what stops them, and going on after a stop."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import Tensor

from keyblock.pipeline import Pipeline
from keyblock.scoring import ScoreSequences
from training.commands.train import main as train_main
from training.data.collection import AlignedSpans, Collection
from training.data.examples import Preparation, Prepared, Row, Selected, Waiting
from training.data.types import Span
from training.evaluate.ranking import load_run_pipeline
from training.evaluate.scoring import TorchModel, score
from training.evaluate.selection import random_precision, segment_precision
from training.learn.best import RESULT, TABLE, judged_pairs, precision
from training.learn.data import Data
from training.learn.loop import Trainer
from training.learn.objectives import RankingObjective
from training.learn.tracking import read_log
from training.learn.train import make_model
from training.model.checkpoints import STATE_FILE, chosen
from training.model.cross_encoder import CrossEncoder
from training.recipe import load_recipe

pytestmark = pytest.mark.usefixtures("undrawn")
STEPS = 6


@pytest.fixture(scope="module")
def tree(recipe_tree: dict[str, Any]) -> dict[str, Any]:
    """Segments of two sentences at most; theta 0 learns from two of the three leading ones."""
    packing = recipe_tree["pipeline"]["packing"] | {"budget": 40, "budget_range": [32, 48]}
    return recipe_tree | {
        "name": "best",
        "pipeline": {
            "segmenter": {"name": "sentences", "block_tokens": 30},
            "selector": {"name": "first"},
            "aggregator": {"name": "max"},
            "packing": packing,
        },
        "training": {
            "segmenter": {"name": "sentences", "block_tokens": 30, "shortest": 14},
            "selector": {"name": "learned", "keep": 3, "by": {"name": "first"}},
            "aggregator": {"name": "max", "passages": 1},
        },
        "best": {"iterations": 3, "patience": 3, "segments": 2, "judged": 6},
        "loss": "hinge",
        "negatives": {"per_query": 1, "depth": 4},
        "budgets": {40: 1.0},
        "steps": STEPS,
        "queries_per_step": 3,
        "checkpoint_every": 2,
        "evaluate_every": 3,
        "dev_queries": 4,
    }


Train = Callable[..., int]


@pytest.fixture(scope="module")
def train(tree: dict[str, Any], toy_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Train:
    """Train into a directory, with some keys of the recipe replaced."""
    file = tmp_path_factory.mktemp("recipes") / "best.yaml"
    file.write_text(yaml.safe_dump(tree), encoding="utf-8")

    def run(out: Path, *settings: str) -> int:
        return train_main([str(file), "--collection", str(toy_path), "--out", str(out), *(f"--set={s}" for s in settings)])

    return run


@pytest.fixture(scope="module")
def best_run(train: Train, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three iterations of six steps. Never write into it."""
    run = tmp_path_factory.mktemp("runs") / "best"
    assert train(run) == 0
    return run


def table_of(run: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((run / TABLE).read_text(encoding="utf-8"))
    return rows


def weights_of(directory: Path) -> dict[str, Tensor]:
    return CrossEncoder.load(directory).state_dict()


def theta_0(iteration: Path) -> dict[str, Tensor]:
    """The weights of the ranker that selects in an iteration and learns beside the other; empty if there is none."""
    weights: dict[str, Tensor] = torch.load(iteration / "checkpoint" / STATE_FILE, weights_only=True).get("selector", {})
    return weights


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())


def test_each_iteration_is_a_run_and_the_best_one_counts(best_run: Path) -> None:
    assert {path.name for path in best_run.glob("iteration-*")} == {f"iteration-{n}" for n in (1, 2, 3)}
    rows = table_of(best_run)
    assert [row["iteration"] for row in rows] == ["random", 1, 2, 3]
    for number in (1, 2, 3):
        assert json.loads((best_run / f"iteration-{number}" / RESULT).read_text(encoding="utf-8")) == rows[number]
    quality = [row["dev"]["toy"]["RR@10"] for row in rows[1:]]
    assert same(weights_of(best_run / "best"), weights_of(best_run / f"iteration-{1 + int(np.argmax(quality))}" / "checkpoint"))
    one = best_run / "iteration-1"
    assert not same(weights_of(one / "checkpoint"), theta_0(one)), "the first iteration trains two rankers, the others one"
    assert not theta_0(best_run / "iteration-2")


def test_the_table_says_what_is_measured(best_run: Path, toy: Collection) -> None:
    """Segment P@1 of each iteration's ranker over all segments, on train and dev, beside that of a random order."""
    preparations = {"toy": Preparation(toy, load_run_pipeline(best_run))}
    judged = judged_pairs(preparations, {"train": "train", "dev": "dev"}, 6)
    assert {split: len(pairs) for split, pairs in judged["toy"].items()} == {"train": 6, "dev": 4}
    rows = table_of(best_run)
    assert rows[0]["P@1"] == {"toy": {split: random_precision(pairs) for split, pairs in judged["toy"].items()}}
    for row in rows[1:]:
        model = CrossEncoder.load(chosen(best_run / f"iteration-{row['iteration']}"))
        scorer = TorchModel(model, preparations["toy"].pipeline.tokenizer)
        found = {split: segment_precision(preparations["toy"], scorer, pairs) for split, pairs in judged["toy"].items()}
        assert row["P@1"] == {"toy": found} == precision(model, preparations, judged)
        assert set(row["dev"]["toy"]) == {"RR@10", "nDCG@10"}


class Searched(AlignedSpans):
    """Counts the queries whose passages it looked for."""

    looked = 0

    def _look(self, query: str) -> list[Span]:
        self.looked += 1
        return [Span(f"{query[:-1]}-3", 0, 5)] if query.endswith("?") else []


def test_passages_that_have_to_be_looked_for_are_looked_for_until_there_are_enough(toy_path: Path, toy_pipeline: Pipeline) -> None:
    few, every = Collection(toy_path), Collection(toy_path)
    for collection in (few, every):
        vars(collection)["spans"] = Searched(collection.qrels, {}, {}, {})
    judged = [
        judged_pairs({"toy": Preparation(of, toy_pipeline)}, {"train": "train"}, count)["toy"]["train"]
        for of, count in ((few, 2), (every, 100))
    ]
    assert [len(pairs) for pairs in judged] == [2, 8]
    assert {pair.query for pair in judged[0]} <= {pair.query for pair in judged[1]}
    assert isinstance(few.spans, Searched)
    assert few.spans.looked < 16
    assert all(pair.query.endswith("?") for pairs in judged for pair in pairs)


def test_theta_0_learns_from_as_many_segments_as_the_recipe_says(best_run: Path) -> None:
    """Of 40 tokens each: two segments of theta 0's and one of theta 1's; then one. That is what a step costs."""
    for number, segments in ((1, 2 + 1), (2, 1), (3, 1)):
        steps = [line for line in read_log(best_run / f"iteration-{number}") if "loss" in line]
        assert [line["tokens"] for line in steps] == [line["pairs"] * segments * 40 for line in steps]


def load_data(run: Path, collection: Collection) -> Data:
    return Data.build(load_recipe(run / "recipe.yaml"), [collection], load_run_pipeline(run), run / "tokenizer.json")


def test_an_iteration_starts_afresh_on_the_best_segments_of_the_one_before(best_run: Path, toy: Collection, tmp_path: Path) -> None:
    """The same training by brute force: a fresh ranker, and of every document the segment that theta n - 1 scores best."""
    number, recipe, data = 2, load_recipe(best_run / "recipe.yaml"), load_data(best_run, toy)
    before, places = CrossEncoder.load(best_run / f"iteration-{number - 1}" / "checkpoint"), []

    class BruteForce(Selected):
        def rows(self, prepared: Prepared, choose: ScoreSequences) -> list[Row]:
            assert isinstance(prepared, Waiting)
            row = []
            for document in prepared.documents:
                blocks = np.arange(min(3, document.n_blocks))
                ways = self.pipeline.block_sequences(prepared.query, document, blocks, prepared.budget)
                logits = [score(before, [packed], 0, bf16=False).item() for packed in ways]
                places.append(int(np.argmax(logits)))
                row.append([ways[places[-1]]])
            return [row]

    alone = recipe.model_copy(update={"seed": recipe.seed + number - 1, "best": None})
    torch.manual_seed(alone.seed)
    fresh, _ = make_model(alone, torch.device("cpu"))
    shutil.copy(best_run / "tokenizer.json", tmp_path / "tokenizer.json")
    objective = RankingObjective(alone, data.pipeline, BruteForce(data.pipeline))
    Trainer(alone, fresh, objective, replace(data, recipe=alone).draw, data.dev, tmp_path).train()
    assert len(set(places)) > 1, "the one before has a choice, and makes one"
    expected = weights_of(best_run / f"iteration-{number}" / "checkpoint")
    for name, value in weights_of(tmp_path / "checkpoint").items():
        torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-5)


def interrupt(monkeypatch: pytest.MonkeyPatch, where: str, directory: str, step: int = 0) -> None:
    """Stop at the moment something was written: a checkpoint of a step, or an iteration's measures."""
    module, _, name = where.rpartition(".")
    write = getattr(__import__(module, fromlist=[name]), name)

    def written(*arguments: Any) -> None:
        write(*arguments)
        path = arguments[0]
        if (path.name == directory and arguments[-1] == step) or (
            path.name == RESULT and path.parent.name == directory and not step
        ):
            raise KeyboardInterrupt

    monkeypatch.setattr(where, written)


@pytest.mark.parametrize(
    ("where", "directory", "step"),
    [
        ("training.learn.loop.save_state", "iteration-1", 2),
        ("training.learn.loop.save_state", "iteration-2", STEPS),
        ("training.learn.best.write_json", "iteration-2", 0),
    ],
    ids=["inside the first", "trained, not measured", "between two"],
)
def test_a_stopped_run_goes_on_to_the_same_weights(
    best_run: Path, train: Train, tmp_path: Path, where: str, directory: str, step: int
) -> None:
    run = tmp_path / "best"
    with pytest.MonkeyPatch.context() as patch:
        interrupt(patch, where, directory, step)
        assert train(run) == 130
    assert not (run / "iteration-3").exists()
    assert (run / directory / RESULT).exists() == (step == 0)
    assert train(run) == 0
    for part in (
        "iteration-1/checkpoint",
        "iteration-2/checkpoint",
        "iteration-3/checkpoint",
        "best",
    ):
        assert same(weights_of(run / part), weights_of(best_run / part)), part
    assert same(theta_0(run / "iteration-1"), theta_0(best_run / "iteration-1"))
    assert table_of(run) == table_of(best_run)


def test_a_finished_run_is_left_as_it_is(best_run: Path, train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Path(shutil.copytree(best_run, tmp_path / "best"))
    times = {path: path.stat().st_mtime_ns for path in run.glob("iteration-*/**/*") if path.is_file()}
    assert train(run) == 0
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert table_of(run) == table_of(best_run)
    lines = [line for line in capsys.readouterr().err.splitlines() if "on dev" in line]
    rows = table_of(best_run)[1:]
    assert [line.partition(",")[0].split()[-1] for line in lines] == [str(row["iteration"]) for row in rows]
    assert all(f"RR@10 {of['RR@10']:.3f}" in line for line, row in zip(lines, rows, strict=True) for of in row["dev"].values())


def test_iterations_and_steps_stop_when_dev_does(train: Train, tmp_path: Path) -> None:
    """Of the dev lists' first two documents none is relevant: no model is better than any other.

    Each training ends a measurement after its first, and the second iteration is the last of four.
    """
    run = tmp_path / "best"
    settings = ("dev_depth=2", "best.iterations=4", "best.patience=1", "patience=1", "steps=20", "evaluate_every=2")
    assert train(run, *settings, "gradient_checkpointing=true") == 0
    assert [row["iteration"] for row in table_of(run)] == ["random", 1, 2]
    for number in (1, 2):
        log = (run / f"iteration-{number}" / "log.jsonl").read_text(encoding="utf-8").splitlines()
        assert [line["step"] for line in map(json.loads, log) if "dev" in line] == [2, 4]
        assert (run / f"iteration-{number}" / "best").is_dir()
    assert same(weights_of(run / "best"), weights_of(run / "iteration-1" / "best")), "an equal one is no better"


def test_each_iteration_starts_afresh_from_init_and_the_run_says_what_it_does_not_keep(
    best_run: Path, train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At a rate of nearly nothing the second iteration's ranker is the one it started from, and not a new head's."""
    settings = ("steps=2", "evaluate_every=2", "best.iterations=2", "pipeline.segmenter.block_tokens=29")
    rates = ("optimizer.encoder_lr=1e-9", "optimizer.head_lr=1e-9")
    assert train(tmp_path / "best", f"init={best_run}", *rates, *settings) == 0
    assert f"best: does not keep of {best_run}: segmenter" in capsys.readouterr().err
    start, second = weights_of(best_run / "best"), weights_of(tmp_path / "best" / "iteration-2" / "checkpoint")
    assert all(torch.allclose(value, start[name], atol=1e-6) for name, value in second.items())
