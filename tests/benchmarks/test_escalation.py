"""The curve of escalation on a collection of two documents, by a real model."""

from benchmarks.cascade import Remembering
from benchmarks.escalation import DEFAULT, escalating, point
from keyblock.bundle import load_bundle
from keyblock.runtime.model import GraphModel
from training.collections.collection import Collection
from training.evaluation.intrinsic import segmented
from training.examples.preparation import Preparation


def test_the_curve_of_one_query(flood: Collection) -> None:
    """Its words are in the answer's block, so that nothing is in doubt below 1 but the other document, which has none of them."""
    bundle = load_bundle(DEFAULT)
    model = Remembering(GraphModel.open(bundle, "cpu", 1))
    preparation = Preparation(flood, bundle.pipeline)
    pairs = segmented(preparation, ["q"])
    never, half = (point(escalating(bundle, below, 2048, None), model, preparation, pairs, 2) for below in (0.0, 0.5))
    assert (never.doubtful, never.tokens, never.gold) == (0.0, 0.0, 1.0)
    assert (half.doubtful, half.gold) == (0.5, 1.0)
    assert 0 < half.tokens <= 2048 / 2
