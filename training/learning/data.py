"""What a run draws its batches from and is measured on: collections seen through the recipe's pipelines."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from keyblock.pipeline import Pipeline
from training.collections.collection import Collection
from training.collections.first_stage import complete_run
from training.examples.examples import EXAMPLES, Examples
from training.examples.preparation import Preparation
from training.examples.prepared_cache import PreparedCache
from training.examples.sampling import Draws, Source, StepBatch
from training.learning.dev import DevSet
from training.models.ranker_module import RankerModule
from training.recipe import Recipe

FILL_AT_MOST = 100_000  # documents that are prepared before the first step; of a larger pool each is when it is drawn


@dataclass
class Data:
    """A run's data.

    Attributes:
        recipe: says what is drawn.
        pipeline: of the training examples.
        examples: make a group's rows.
        sources: the training queries of each collection.
        dev: the fixed dev sample, through the pipeline that is served.
        caches: of the documents that are measured and of those that are trained on, if kept anywhere; often the same.
    """

    recipe: Recipe
    pipeline: Pipeline
    examples: Examples
    sources: dict[str, Source]
    dev: DevSet
    caches: list[PreparedCache]

    def __post_init__(self) -> None:
        self._draws = Draws(self.sources, self.recipe, self.examples)

    @classmethod
    def build(
        cls,
        recipe: Recipe,
        collections: Sequence[Collection],
        served: Pipeline,
        tokenizer_file: Path,
        cache: Path | None = None,
        chooser: RankerModule | None = None,
    ) -> "Data":
        """Look up all that the recipe needs of the collections.

        Args:
            recipe: says what.
            collections: in the order that decides what is drawn.
            served: the recipe's pipeline.
            tokenizer_file: the file that its tokenizer was read from.
            cache: where prepared documents are kept between runs; nowhere when left out.
            chooser: selects in place of the model being trained, where the recipe has one.

        Raises CollectionError for what is not there.
        """
        pipeline = _of_training(recipe, served) if recipe.training else served
        caches = _caches(cache, tokenizer_file, served, pipeline) if cache else []
        shown = {c.name: Preparation(c, served, caches[0].prepare if caches else None) for c in collections}
        drawn = {c.name: Preparation(c, pipeline, caches[1].prepare if caches else None) for c in collections}
        dev = DevSet.build(shown, recipe, chooser)
        sources = {name: make_source(preparation, recipe) for name, preparation in (drawn if recipe.training else shown).items()}
        return cls(recipe, pipeline, EXAMPLES[recipe.examples](pipeline), sources, dev, caches)

    def draw(self, step: int) -> StepBatch:
        """The batch of a step."""
        return self._draws.step(step)

    def prepare(self) -> None:
        """Prepare the training documents at once, where there is a cache and the run will see most of them anyway."""
        if not self.caches:
            return
        for source in self.sources.values():
            pool = {d for of in (source.relevant, source.negatives) for documents in of.values() for d in documents}
            if len(pool) <= min(FILL_AT_MOST, self._looked_at()):
                self.caches[1].fill([source.preparation.collection.document(d) for d in sorted(pool)])

    def _looked_at(self) -> int:
        """Documents that the steps look at, repetitions counted."""
        how, least = self.recipe.negatives, min(self.recipe.budgets)
        queries = self.recipe.queries_per_step or max(1, self.recipe.tokens_per_step // (least * (1 + how.per_query)))
        return self.recipe.steps * queries * (1 + max(how.per_query, how.hard_sample if how.hard else 0))

    def close(self) -> None:
        """Keep what was prepared since the caches were last written."""
        for cache in self.caches:
            cache.flush()


def _of_training(recipe: Recipe, served: Pipeline) -> Pipeline:
    config = recipe.training_pipeline
    encoder = served.encoder if config.encoder else None
    return Pipeline(config, served.tokenizer, served.frequencies, encoder)


def _caches(directory: Path, tokenizer_file: Path, served: Pipeline, trained: Pipeline) -> list[PreparedCache]:
    shown, drawn = (PreparedCache(directory, pipeline, tokenizer_file) for pipeline in (served, trained))
    return [shown, shown if drawn.store == shown.store else drawn]


def make_source(preparation: Preparation, recipe: Recipe) -> Source:
    """The training queries of one collection, with a first-stage list for each."""
    depth = recipe.negatives.depth
    return Source.build(preparation, recipe.split, complete_run(preparation.collection, recipe.split, depth), depth)
