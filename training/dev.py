"""A small fixed dev measurement, cheap enough to run inside training."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from keyblock.packing import Packed
from training.measures import means, per_query
from training.model import CrossEncoder
from training.recipe import Recipe
from training.runs import Run, ranked
from training.sampling import Preparation
from training.scoring import score


@dataclass
class DevSet:
    """Packed candidates of a fixed sample of dev queries of each collection."""

    preparations: Mapping[str, Preparation]
    pairs: Mapping[str, list[tuple[str, str, Packed]]]
    bf16: bool

    @classmethod
    def build(cls, preparations: Mapping[str, Preparation], recipe: Recipe) -> "DevSet":
        """Take `dev_queries` queries a collection and the top `dev_depth` of their first-stage lists."""
        pairs = {name: _pairs(preparation, recipe) for name, preparation in preparations.items()}
        return cls(preparations, pairs, recipe.precision == "bf16")

    def measure(self, model: CrossEncoder) -> dict[str, dict[str, float]]:
        """RR@10 and nDCG@10 of the model alone, by collection."""
        return {name: self._measure(name, model) for name in self.pairs}

    def _measure(self, name: str, model: CrossEncoder) -> dict[str, float]:
        pairs, preparation = self.pairs[name], self.preparations[name]
        tokenizer, sequences = preparation.pipeline.tokenizer, [packed for _, _, packed in pairs]
        logits = score(model, sequences, tokenizer.pad_id, self.bf16, document_type=tokenizer.template.document_type)
        run: Run = {}
        for (query, document, _), logit in zip(pairs, logits.tolist(), strict=True):
            run.setdefault(query, {})[document] = logit
        run = {query: ranked(scores) for query, scores in run.items()}
        return means(per_query(preparation.collection.qrels, run, run))


def _pairs(preparation: Preparation, recipe: Recipe) -> list[tuple[str, str, Packed]]:
    run = preparation.collection.run("dev")
    queries = random.Random(0).sample(sorted(run), min(recipe.dev_queries, len(run)))
    budget = recipe.pipeline.packing.budget
    return [(q, d, preparation.pack(q, d, budget)) for q in queries for d in list(run[q])[: recipe.dev_depth]]
