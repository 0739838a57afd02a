"""BeST's first iteration: theta 0 learns from every segment while theta 1 learns from those that theta 0 finds best (section 3)."""

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

SELECTOR = "selector"  # of a checkpoint: theta 0's directory


class Twins(RankerModule):
    """Two rankers trained at once: to whoever scores with it, it is theta 1.

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
        """Both: they share neither weight nor loss, so that one's loud gradient must not quieten the other's."""
        return [self.ranker, self.selector]

    def states(self, *inputs: Tensor) -> Tensor:
        """Theta 1's."""
        return self.ranker.states(*inputs)

    def scores(self, states: Tensor) -> Tensor:
        """Theta 1's."""
        return self.ranker.scores(states)

    def inputs(self, sequences: Sequence[Packed], pad_id: int, document_type: int = 1) -> tuple[Tensor, ...]:
        """Theta 1's."""
        return self.ranker.inputs(sequences, pad_id, document_type)

    def save_weights(self, directory: str | Path) -> None:
        """Write theta 1 as if it were alone, and theta 0 into a directory of its own beside it."""
        self.ranker.save_weights(directory)
        (Path(directory) / SELECTOR).mkdir(exist_ok=True)
        self.selector.save(Path(directory) / SELECTOR)

    def load_weights(self, directory: str | Path) -> None:
        """See RankerModule."""
        self.ranker.load_weights(directory)
        self.selector.load_weights(Path(directory) / SELECTOR)

    def start_from(self, directory: str | Path) -> None:
        """See RankerModule; both start there."""
        self.ranker.start_from(directory)
        self.selector.start_from(directory)

    def pretrained(self) -> Iterator[nn.Parameter]:
        """Of both."""
        yield from self.ranker.pretrained()
        yield from self.selector.pretrained()

    def checkpoint_activations(self) -> None:
        """Of both."""
        self.ranker.checkpoint_activations()
        self.selector.checkpoint_activations()

    @property
    def max_length(self) -> int:
        """Theta 1's."""
        return self.ranker.max_length

    @property
    def hidden_size(self) -> int:
        """Theta 1's."""
        return self.ranker.hidden_size

    @property
    def vocabulary_size(self) -> int:
        """Theta 1's."""
        return self.ranker.vocabulary_size


class TwinObjective:
    """The sum of theta 0's loss over all segments and theta 1's over those that theta 0 chooses (BeST, equations 2 and 3).

    They share no weight, so minimising the sum minimises each.

    Args:
        recipe: of the iteration.
        pipeline: of the training examples.
        drawn: segments of a document that theta 0 learns from in a step; None: all.
    """

    def __init__(self, recipe: Recipe, pipeline: Pipeline, drawn: int | None = None) -> None:
        self.every = RankingObjective(recipe, pipeline, Segments(pipeline, drawn))
        self.pipeline, self.recipe = pipeline, recipe

    def __call__(self, model: RankerModule, groups: Sequence[Group]) -> Tensor:
        """See Objective; of Twins. Raises TypeError for another model."""
        if not isinstance(model, Twins):
            raise TypeError(f"BeST's first iteration trains Twins, not {type(model).__name__}")
        chosen = RankingObjective(self.recipe, self.pipeline, Selected(self.pipeline), chooser=model.selector)
        return chosen(model.ranker, groups) + self.every(model.selector, groups)

    def cost(self, group: Group) -> int:
        """See Objective."""
        return group.tokens * (1 + self.every.examples.sequences)
