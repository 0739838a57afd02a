"""BeST (Kim et al. 2021, section 3): complete trainings of fresh rankers, each on the segments that the previous one ranks best.

In the first iteration theta 0 learns from all segments and chooses segments for theta 1 while both train (equations 1 to 3). From
the second on, the ranker of the previous iteration chooses (equation 4). Iterations stop when dev quality no longer improves; the
best ranker is the run's.

RUN holds iteration-1, iteration-2 ..., each a run directory with an iteration.json once it is finished, best/ (the best model) and
iterations.json (the paper's Table 2).
"""

import random
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from keyblock.encoders import ENCODERS
from keyblock.pipeline import Pipeline
from training.data.collection import AlignedSpans, Collection
from training.data.examples import Preparation, Segments, Selected
from training.data.files import read_json, write_json
from training.data.sampling import Group
from training.evaluate.scoring import TorchModel
from training.evaluate.selection import Segmented, random_precision, segment_precision, segmented
from training.learn.data import Data
from training.learn.dev import EarlyStopping, dev_quality
from training.learn.loop import Trainer, make_accelerator
from training.learn.objectives import Objective, RankingObjective
from training.learn.run_directory import begin, locked
from training.learn.train import check_mixture, dropped, make_model, prepared_data, say, unknown_judgements
from training.model.checkpoints import chosen, save_best
from training.model.devices import in_bf16
from training.model.families import load_ranker
from training.model.ranker_module import RankerModule
from training.recipe import Best, Recipe, RecipeError


class TwinObjective:
    """The sum of theta 0's loss over all segments and theta 1's over those that theta 0 chooses (BeST, equations 2 and 3).

    The rankers share no weights, so that minimising the sum minimises both losses.

    Args:
        recipe: the iteration's recipe.
        pipeline: the pipeline of the training examples.
        selector: theta 0; the model in training is theta 1.
        drawn: segments of a document that theta 0 learns from in a step; None: all.
    """

    def __init__(self, recipe: Recipe, pipeline: Pipeline, selector: RankerModule, drawn: int | None = None) -> None:
        self.all_segments = RankingObjective(recipe, pipeline, Segments(pipeline, drawn))
        self.chosen = RankingObjective(recipe, pipeline, Selected(pipeline), chooser=selector)
        self.selector = selector

    def __call__(self, model: RankerModule, groups: Sequence[Group]) -> Tensor:
        """See Objective."""
        return self.chosen(model, groups) + self.all_segments(self.selector, groups)

    def cost(self, group: Group) -> int:
        """See Objective."""
        return group.tokens * (1 + self.all_segments.examples.sequences)


PARTS = ("pipeline.json", "tokenizer.json", "frequencies.tsv", *(encoder.carried_as for encoder in ENCODERS.members()))
RESULT, TABLE = "iteration.json", "iterations.json"
Judged = Mapping[str, Mapping[str, Sequence[Segmented]]]
"""The pairs whose segments are judged, by collection and split."""


def train_best(recipe: Recipe, collections: Sequence[Collection], run: Path, cache: Path | None = None) -> None:
    """Train all iterations, or continue a stopped run, within an iteration or between two.

    Raises RecipeError when `run` holds a run of another recipe, or the recipe does not fit collections or backbone;
    LockError when another process trains into it.
    """
    check_mixture(recipe, collections)
    unknown = list(unknown_judgements(collections))
    accelerator = make_accelerator()
    _, backbone = make_model(recipe, accelerator.device)
    with locked(run, wanted=accelerator.is_main_process):
        if accelerator.is_main_process:
            begin(recipe, collections, backbone, run)
            say(recipe, [*unknown, *dropped(recipe)])
        accelerator.wait_for_everyone()
        data = prepared_data(recipe, collections, run, accelerator, cache)
        Iterations(recipe, data, run, accelerator).train()
        data.close()


@dataclass
class Iterations:
    """The iterations of one run."""

    recipe: Recipe
    data: Data
    run: Path
    accelerator: Accelerator

    def train(self) -> None:
        """Train the iterations one after the other; a finished iteration is read from its files."""
        stopping, judged = EarlyStopping(self.best.patience), self._judged(self.best.judged)
        rows: list[dict[str, Any]] = [{"iteration": "random", "P@1": _random(judged)}]
        for number in range(1, self.best.iterations + 1):
            rows.append(self._iteration(number, judged))
            better = stopping.improves(dev_quality(rows[-1]["dev"]))
            if self.accelerator.is_main_process:
                print(f"{self.recipe.name}: {_in_words(rows[-1])}", file=sys.stderr)
                if better:
                    save_best(self.run, load_ranker(chosen(self._directory(number))))
                write_json(self.run / TABLE, rows)
            if stopping.exhausted:
                return

    @property
    def best(self) -> Best:
        """The recipe's settings of the procedure. Raises RecipeError when it has none."""
        if self.recipe.best is None:
            raise RecipeError(f"recipe {self.recipe.name!r} has no `best`: it is no recipe for BeST")
        return self.recipe.best

    def _directory(self, number: int) -> Path:
        return self.run / f"iteration-{number}"

    def _iteration(self, number: int, judged: Judged) -> dict[str, Any]:
        """Train an iteration, if it is not finished, and return its measures."""
        directory = self._directory(number)
        if not (directory / RESULT).exists():
            if self.accelerator.is_main_process:
                directory.mkdir(exist_ok=True)
                for name in (name for name in PARTS if (self.run / name).exists()):
                    shutil.copy(self.run / name, directory / name)
            self.accelerator.wait_for_everyone()
            self._train(number, directory)
            if self.accelerator.is_main_process:
                write_json(directory / RESULT, {"iteration": number} | self._measure(directory, judged))
            self.accelerator.wait_for_everyone()
        return read_json(directory / RESULT)

    def _train(self, number: int, directory: Path) -> None:
        """Train a fresh ranker completely, with a seed of its own, so that draws and head differ."""
        recipe = self.recipe.model_copy(
            update={"best": None, "seed": self.recipe.seed + number - 1, "name": f"{self.recipe.name} {number}"}
        )
        torch.manual_seed(recipe.seed)
        data, device = replace(self.data, recipe=recipe), self.accelerator.device
        (model, _), selector = make_model(recipe, device), None
        if number == 1:
            selector, _ = make_model(recipe, device)
            objective: Objective = TwinObjective(recipe, data.pipeline, selector, self.best.segments)
        else:
            previous = load_ranker(chosen(self._directory(number - 1))).to(device)
            objective = RankingObjective(recipe, data.pipeline, data.examples, previous)
        Trainer(recipe, model, objective, data.draw, data.dev, directory, self.accelerator, selector=selector).train()

    def _measure(self, directory: Path, judged: Judged) -> dict[str, Any]:
        """Segment P@1 by collection and split, and the dev measures of the iteration's model."""
        model = load_ranker(chosen(directory)).to(self.accelerator.device)
        bf16 = in_bf16(self.recipe.precision, self.accelerator.device)
        return {"P@1": precision(model, self._served(), judged, bf16), "dev": self.data.dev.measure(model)}

    def _served(self) -> Mapping[str, Preparation]:
        return self.data.dev.preparations

    def _judged(self, count: int) -> Judged:
        return judged_pairs(self._served(), {"train": self.recipe.split, "dev": "dev"}, count)


def _in_words(row: Mapping[str, Any]) -> str:
    """An iteration's measures on dev, in a line."""
    parts = [f"{name} segment P@1 {splits['dev']:.3f}" for name, splits in row["P@1"].items() if "dev" in splits]
    parts += [f"{name} RR@10 {values['RR@10']:.3f}" for name, values in row["dev"].items()]
    return f"iteration {row['iteration']}, on dev: {', '.join(parts)}"


def judged_pairs(preparations: Mapping[str, Preparation], splits: Mapping[str, str], count: int) -> Judged:
    """A fixed sample of `count` queries of each collection and split, without those whose gold passage no block holds."""
    pairs: dict[str, dict[str, list[Segmented]]] = {}
    for name, preparation in preparations.items():
        for label, split in splits.items():
            queries = _with_gold(preparation.collection, split, count)
            pairs.setdefault(name, {})[label] = segmented(preparation, queries)
    return pairs


def _with_gold(collection: Collection, split: str, count: int) -> list[str]:
    """A fixed sample of a split's queries with a gold passage; passages that must be searched in documents are searched lazily."""
    queries, spans, rng = collection.split(split), collection.spans, random.Random(0)
    if isinstance(spans, AlignedSpans):
        return list(islice((query for query in rng.sample(queries, len(queries)) if query in spans), count))
    gold = [query for query in queries if spans.get(query)]
    return rng.sample(gold, min(count, len(gold)))


def precision(
    model: RankerModule, preparations: Mapping[str, Preparation], judged: Judged, bf16: bool = False
) -> dict[str, dict[str, float]]:
    """Segment P@1 of a ranker by collection and split; splits without a judged pair are left out."""
    return {
        name: {
            split: segment_precision(preparations[name], TorchModel(model, preparations[name].pipeline.tokenizer, bf16), pairs)
            for split, pairs in splits.items()
            if pairs
        }
        for name, splits in judged.items()
    }


def _random(judged: Judged) -> dict[str, dict[str, float]]:
    return {name: {split: random_precision(pairs) for split, pairs in splits.items() if pairs} for name, splits in judged.items()}
