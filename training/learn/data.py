"""The data of a run: collections, prepared by the recipe's pipelines, for its batches and its dev measurements."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from keyblock.pipeline import Pipeline
from training.data.collection import Collection
from training.data.examples import EXAMPLES, Examples, Preparation
from training.data.first_stage import complete_run
from training.data.prepared_cache import PreparedCache
from training.data.sampling import Draws, Source, StepBatch
from training.learn.dev import DevSet
from training.model.ranker_module import RankerModule
from training.recipe import Recipe

FILL_AT_MOST = 100_000  # documents prepared before the first step; those of a larger pool are prepared when drawn


@dataclass
class Data:
    """A run's data.

    Attributes:
        recipe: says what is drawn.
        pipeline: the pipeline of the training examples.
        examples: makes a group's rows.
        sources: the training queries of each collection.
        dev: the fixed dev sample, with the pipeline that is served.
        caches: the caches of dev and of training documents, often the same one twice; empty if documents are not kept.
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
        """Look up everything that the recipe needs from the collections.

        Args:
            recipe: says what is needed.
            collections: the collections; their order decides what is drawn.
            served: the recipe's pipeline.
            tokenizer_file: the file of its tokenizer.
            cache: the directory that keeps prepared documents between runs; None: they are not kept.
            chooser: selects in place of the model in training, if the recipe has one.

        Raises CollectionError for missing parts.
        """
        pipeline = _training_pipeline(recipe, served) if recipe.training else served
        caches = _caches(cache, tokenizer_file, served, pipeline) if cache else []
        for_dev = {c.name: Preparation(c, served, caches[0].prepare if caches else None) for c in collections}
        for_training = {c.name: Preparation(c, pipeline, caches[1].prepare if caches else None) for c in collections}
        dev = DevSet.build(for_dev, recipe, chooser)
        preparations = for_training if recipe.training else for_dev
        sources = {name: make_source(preparation, recipe) for name, preparation in preparations.items()}
        return cls(recipe, pipeline, EXAMPLES[recipe.examples](pipeline), sources, dev, caches)

    def draw(self, step: int) -> StepBatch:
        """The batch of a step."""
        return self._draws.step(step)

    def prepare(self) -> None:
        """Prepare the training documents in advance, if there is a cache and the run will read most of them anyway."""
        if not self.caches:
            return
        for source in self.sources.values():
            pool = {d for by_query in (source.relevant, source.negatives) for documents in by_query.values() for d in documents}
            if len(pool) <= min(FILL_AT_MOST, self._reads()):
                self.caches[1].fill([source.preparation.collection.document(d) for d in sorted(pool)])

    def _reads(self) -> int:
        """How often all steps together read a document."""
        negatives, queries = self.recipe.negatives, self.recipe.queries_at(min(self.recipe.budgets))
        return self.recipe.steps * queries * (1 + max(negatives.per_query, negatives.hard_sample if negatives.hard else 0))

    def close(self) -> None:
        """Write the documents that were prepared since the caches were last written."""
        for cache in self.caches:
            cache.flush()


def _training_pipeline(recipe: Recipe, served: Pipeline) -> Pipeline:
    config = recipe.training_pipeline
    encoder = served.encoder if config.encoder else None
    return Pipeline(config, served.tokenizer, served.frequencies, encoder)


def _caches(directory: Path, tokenizer_file: Path, served: Pipeline, trained: Pipeline) -> list[PreparedCache]:
    for_dev, for_training = (PreparedCache(directory, pipeline, tokenizer_file) for pipeline in (served, trained))
    return [for_dev, for_dev if for_training.store == for_dev.store else for_training]


def make_source(preparation: Preparation, recipe: Recipe) -> Source:
    """The training queries of one collection, with a first-stage list for each."""
    depth = recipe.negatives.depth
    return Source.build(preparation, recipe.split, complete_run(preparation.collection, recipe.split, depth), depth)
