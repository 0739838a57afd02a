"""BeST's first iteration: theta 0 learns from all segments, theta 1 from those that theta 0 ranks best (section 3)."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from torch import Tensor, nn

from keyblock.packing import Packed
from keyblock.pipeline import Pipeline
from training.examples.examples import Segments, Selected
from training.examples.sampling import Group
from training.learning.objectives import RankingObjective
from training.models.ranker_module import RankerModule
from training.recipe import Recipe

SELECTOR = "selector"  # theta 0's directory in a checkpoint


class Twins(RankerModule):
    """Two rankers that train at once. As a ranker, it scores with theta 1.

    Args:
        ranker: theta 1.
        selector: theta 0.
    """

    def __init__(self, ranker: RankerModule, selector: RankerModule) -> None:
        super().__init__()
        self.ranker, self.selector = ranker, selector
        self.family, self.aggregator = ranker.family, ranker.aggregator

    @property
    def rankers(self) -> list[RankerModule]:
        """Both rankers. They share no weights and no loss, so their gradients are clipped separately."""
        return [self.ranker, self.selector]

    def states(self, *inputs: Tensor) -> Tensor:
        """See RankerModule: theta 1's states."""
        return self.ranker.states(*inputs)

    def scores(self, states: Tensor) -> Tensor:
        """See RankerModule: theta 1's scores."""
        return self.ranker.scores(states)

    def inputs(self, sequences: Sequence[Packed], pad_id: int, document_type: int = 1) -> tuple[Tensor, ...]:
        """See RankerModule: theta 1's inputs."""
        return self.ranker.inputs(sequences, pad_id, document_type)

    def save_weights(self, directory: str | Path) -> None:
        """Write theta 1 as a checkpoint of its own, and theta 0 into the directory SELECTOR in it."""
        self.ranker.save_weights(directory)
        (Path(directory) / SELECTOR).mkdir(exist_ok=True)
        self.selector.save(Path(directory) / SELECTOR)

    def load_weights(self, directory: str | Path) -> None:
        """See RankerModule."""
        self.ranker.load_weights(directory)
        self.selector.load_weights(Path(directory) / SELECTOR)

    def start_from(self, directory: str | Path) -> None:
        """See RankerModule; both rankers start there."""
        self.ranker.start_from(directory)
        self.selector.start_from(directory)

    def pretrained(self) -> Iterator[nn.Parameter]:
        """See RankerModule: the parameters of both rankers."""
        yield from self.ranker.pretrained()
        yield from self.selector.pretrained()

    def checkpoint_activations(self) -> None:
        """See RankerModule; for both rankers."""
        self.ranker.checkpoint_activations()
        self.selector.checkpoint_activations()

    @property
    def max_length(self) -> int:
        """See RankerModule: theta 1's."""
        return self.ranker.max_length

    @property
    def hidden_size(self) -> int:
        """See RankerModule: theta 1's."""
        return self.ranker.hidden_size

    @property
    def vocabulary_size(self) -> int:
        """See RankerModule: theta 1's."""
        return self.ranker.vocabulary_size


class TwinObjective:
    """The sum of theta 0's loss over all segments and theta 1's over those that theta 0 chooses (BeST, equations 2 and 3).

    The rankers share no weights, so that minimising the sum minimises both losses.

    Args:
        recipe: the iteration's recipe.
        pipeline: the pipeline of the training examples.
        drawn: segments of a document that theta 0 learns from in a step; None: all.
    """

    def __init__(self, recipe: Recipe, pipeline: Pipeline, drawn: int | None = None) -> None:
        self.all_segments = RankingObjective(recipe, pipeline, Segments(pipeline, drawn))
        self.pipeline, self.recipe = pipeline, recipe

    def __call__(self, model: RankerModule, groups: Sequence[Group]) -> Tensor:
        """See Objective; `model` must be Twins. Raises TypeError for another model."""
        if not isinstance(model, Twins):
            raise TypeError(f"BeST's first iteration trains Twins, not {type(model).__name__}")
        chosen = RankingObjective(self.recipe, self.pipeline, Selected(self.pipeline), chooser=model.selector)
        return chosen(model.ranker, groups) + self.all_segments(model.selector, groups)

    def cost(self, group: Group) -> int:
        """See Objective."""
        return group.tokens * (1 + self.all_segments.examples.sequences)
