"""A small fixed measurement on dev, cheap enough to run during training, and early stopping by it."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from keyblock.pipeline import Selection
from keyblock.scoring import score_selections, select_documents
from training.data.examples import Preparation
from training.data.files import ranked
from training.data.first_stage import first_stage_run
from training.data.types import Run
from training.evaluate.measures import means, per_query
from training.evaluate.scoring import TorchModel, empty_last
from training.model.devices import in_bf16
from training.model.ranker_module import RankerModule
from training.recipe import Recipe


@dataclass
class DevSet:
    """Candidates of a fixed sample of dev queries of each collection. Their blocks are selected once, unless the model selects.

    Attributes:
        preparations: the collections by name, with the pipeline that will be served.
        candidates: document ids by collection and query.
        precision: the recipe's precision.
        chooser: scores single blocks for a learned selector; None: the measured model does.
    """

    preparations: Mapping[str, Preparation]
    candidates: Mapping[str, Mapping[str, list[str]]]
    precision: str
    chooser: RankerModule | None = None

    def __post_init__(self) -> None:
        self._selections: dict[tuple[str, str], list[Selection]] = {}

    @classmethod
    def build(cls, preparations: Mapping[str, Preparation], recipe: Recipe, chooser: RankerModule | None = None) -> "DevSet":
        """Take `dev_queries` queries of each collection and the top `dev_depth` of their first-stage lists.

        Raises CollectionError for a query or document without a text.
        """
        candidates = {name: _candidates(preparation, recipe) for name, preparation in preparations.items()}
        return cls(preparations, candidates, recipe.precision, chooser)

    def measure(self, model: RankerModule) -> dict[str, dict[str, float]]:
        """RR@10 and nDCG@10 of the model alone, by collection."""
        return {name: self._measure(name, model) for name in self.candidates}

    def _measure(self, name: str, model: RankerModule) -> dict[str, float]:
        preparation, candidates = self.preparations[name], self.candidates[name]
        pipeline = preparation.pipeline
        scorer = TorchModel(model, pipeline.tokenizer, in_bf16(self.precision, next(model.parameters()).device), self.chooser)
        selections = [selection for query in candidates for selection in self._select(name, query, scorer)]
        scored = score_selections(pipeline, selections, scorer)
        logits = iter(empty_last(scored.logits, scored.selections).tolist())
        run: Run = {query: ranked({d: next(logits) for d in documents}) for query, documents in candidates.items()}
        return means(per_query(preparation.collection.qrels, run, run))

    def _select(self, name: str, query: str, scorer: TorchModel) -> list[Selection]:
        preparation = self.preparations[name]
        pipeline = preparation.pipeline
        if (name, query) in self._selections:
            return self._selections[name, query]
        documents = [preparation.document(d) for d in self.candidates[name][query]]
        selections = select_documents(pipeline, preparation.query(query), documents, scorer.choose)
        if not pipeline.asks_model:
            self._selections[name, query] = selections
        return selections


def _candidates(preparation: Preparation, recipe: Recipe) -> dict[str, list[str]]:
    run = first_stage_run(preparation.collection, "dev", recipe.dev_depth)
    queries = random.Random(0).sample(sorted(run), min(recipe.dev_queries, len(run)))
    for query in queries:  # a missing text is an error now, not at the first measurement
        preparation.collection.query(query)
    return {query: preparation.collection.require(list(run[query])[: recipe.dev_depth]) for query in queries}


MEASURE = "RR@10"


def dev_quality(dev: Mapping[str, Mapping[str, float]]) -> float:
    """The quality that decides: the mean over the collections of RR@10 on dev."""
    return fmean(values[MEASURE] for values in dev.values())


@dataclass
class EarlyStopping:
    """Watches the quality on dev.

    Attributes:
        patience: measurements in a row without improvement until training stops; None: never, and no best model is kept.
        best: the best quality so far.
        stale: measurements since the best one.
    """

    patience: int | None = None
    best: float = -math.inf
    stale: int = 0

    def improves(self, quality: float) -> bool:
        """Record a measurement. Returns whether it is the best so far; an equal one is no improvement."""
        better = quality > self.best
        self.best, self.stale = (quality, 0) if better else (self.best, self.stale + 1)
        return better

    def begin(self, quality: float) -> None:
        """Record the quality of the model that training began from: a trained one that is as good counts as better."""
        self.best = math.nextafter(quality, -math.inf)

    @property
    def exhausted(self) -> bool:
        """Whether to stop."""
        return self.patience is not None and self.stale >= self.patience

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return {"best": self.best, "stale": self.stale}

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Restore the state from a checkpoint."""
        self.best, self.stale = float(state_dict["best"]), int(state_dict["stale"])
