"""BeST's first iteration: theta 0 learns from every segment while theta 1 learns from those that theta 0 finds best (section 3)."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor, nn

from keyblock.pipeline import Pipeline
from training.examples.examples import Segments, Selected
from training.examples.sampling import Group
from training.learning.objectives import RankingObjective
from training.models.cross_encoder import CrossEncoder
from training.recipe import Recipe

SELECTOR = "selector"  # of a checkpoint: theta 0's directory


class Twins(CrossEncoder):
    """Two rankers trained at once: to whoever scores with it, it is theta 1.

    Args:
        ranker: theta 1.
        selector: theta 0.
    """

    def __init__(self, ranker: CrossEncoder, selector: CrossEncoder) -> None:
        nn.Module.__init__(self)  # not CrossEncoder's: it would make a third head
        self.ranker = ranker
        self.selector = selector
        # only its parameters are asked for: the optimizer gives encoders a rate of their own
        self.encoder = nn.ModuleList([ranker.encoder, selector.encoder])
        self.head, self.aggregator = ranker.head, ranker.aggregator

    @property
    def rankers(self) -> list[CrossEncoder]:
        """See CrossEncoder: they share neither weight nor loss, so that one's loud gradient must not quieten the other's."""
        return [self.ranker, self.selector]

    def states(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Theta 1's: see CrossEncoder."""
        return self.ranker.states(input_ids, token_type_ids, attention_mask)

    def save(self, directory: str | Path) -> None:
        """Write theta 1 as CrossEncoder does, and theta 0 into a directory of its own beside it."""
        self.ranker.save(directory)
        (Path(directory) / SELECTOR).mkdir(exist_ok=True)
        self.selector.save(Path(directory) / SELECTOR)

    def load_weights(self, directory: str | Path, encoder: bool = True) -> None:
        """Load what `save` wrote."""
        self.ranker.load_weights(directory, encoder)
        self.selector.load_weights(Path(directory) / SELECTOR, encoder)


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

    def __call__(self, model: CrossEncoder, groups: Sequence[Group]) -> Tensor:
        """See Objective; of Twins. Raises TypeError for another model."""
        if not isinstance(model, Twins):
            raise TypeError(f"BeST's first iteration trains Twins, not {type(model).__name__}")
        chosen = RankingObjective(self.recipe, self.pipeline, Selected(self.pipeline), chooser=model.selector)
        return chosen(model.ranker, groups) + self.every(model.selector, groups)

    def cost(self, group: Group) -> int:
        """See Objective."""
        return group.tokens * (1 + self.every.examples.sequences)
