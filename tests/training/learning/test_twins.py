"""BeST's two rankers of the first iteration: which learns from what, and that neither sees the other's gradient."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from keyblock.pipeline import Pipeline
from training.data.collection import Collection
from training.data.examples import Preparation, Row, Segments, Selected, Waiting
from training.data.sampling import Group
from training.evaluate.scoring import score
from training.learn.best import SELECTOR, TwinObjective, Twins
from training.learn.objectives import LOSSES
from training.model.cross_encoder import CrossEncoder
from training.model.ranker_module import pad
from training.recipe import Recipe

BUDGET = 40


@pytest.fixture(scope="module")
def pipeline(change_pipeline: Callable[..., Pipeline]) -> Pipeline:
    """Theta 0 chooses among the four leading segments."""
    return change_pipeline(
        segmenter={"name": "sentences", "block_tokens": 20},
        selector={"name": "learned", "keep": 4, "by": {"name": "first"}},
        aggregator={"name": "max", "passages": 1},
    )


@pytest.fixture
def groups(toy: Collection, pipeline: Pipeline) -> list[Group]:
    preparation, groups = Preparation(toy, pipeline), []
    for query, documents in {"river?": ("river-3", "river-0"), "stone?": ("stone-3", "river-2")}.items():
        pairs = [preparation.pair(query, name) for name in documents]
        prepared = Selected(pipeline).prepare(preparation.query(query), pairs, BUDGET, np.random.default_rng(0))
        groups.append(Group(query, documents, prepared, 2 * BUDGET))
    return groups


def make_ranker(backbone: Path, seed: int) -> CrossEncoder:
    torch.manual_seed(seed)
    model = CrossEncoder.from_backbone(str(backbone))
    torch.nn.init.normal_(model.encoder.embeddings.word_embeddings.weight)
    torch.nn.init.normal_(model.head.weight)
    return model


@pytest.fixture
def twins(tiny_backbone: Path) -> Twins:
    return Twins(make_ranker(tiny_backbone, 0), make_ranker(tiny_backbone, 1))


def gradients(model: CrossEncoder) -> dict[str, Tensor]:
    found = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    return found


def slow_loss(model: CrossEncoder, rows: list[Row], loss: str) -> Tensor:
    return LOSSES[loss](torch.stack([torch.cat([model(*pad(document, 0)) for document in row]) for row in rows]))


def best_segments(pipeline: Pipeline, group: Group, chooser: CrossEncoder) -> list[Row]:
    """I of equation 2: of each document's segments the one that theta 0 scores best, by trying each."""
    assert isinstance(group.prepared, Waiting)
    query, documents, budget, _ = group.prepared
    row = []
    for document in documents:
        ways = pipeline.block_sequences(query, document, np.arange(min(4, document.n_blocks)), budget)
        row.append([max(ways, key=lambda packed: score(chooser, [packed], 0, bf16=False).item())])
    return [row]


def test_each_learns_from_its_own_loss_alone(
    twins: Twins, groups: list[Group], pipeline: Pipeline, make_recipe: Callable[..., Recipe]
) -> None:
    """Theta 0's gradient is that of all segments, theta 1's that of the best ones: the sum mixes nothing."""
    total = TwinObjective(make_recipe(loss="hinge"), pipeline)(twins.train(), groups)
    every = [Segments(pipeline).rows(group.prepared, lambda _: pytest.fail("no model chooses these")) for group in groups]
    best = [best_segments(pipeline, group, twins.selector) for group in groups]
    assert [len(rows) for rows in every] == [4, 4]
    total.backward()
    theta1, theta0 = gradients(twins.ranker), gradients(twins.selector)
    chosen = torch.stack([slow_loss(twins.ranker, rows, "hinge") for rows in best]).mean()
    chosen.backward()
    torch.testing.assert_close(theta1, gradients(twins.ranker), rtol=1e-3, atol=1e-4)
    assert gradients(twins.selector) == {}
    all_segments = torch.stack([slow_loss(twins.selector, rows, "hinge") for rows in every]).mean()
    all_segments.backward()
    torch.testing.assert_close(theta0, gradients(twins.selector), rtol=1e-3, atol=1e-4)
    assert gradients(twins.ranker) == {}
    torch.testing.assert_close(total, chosen + all_segments, rtol=1e-4, atol=1e-5)
    assert twins.ranker.training
    assert twins.selector.training


def test_the_choice_follows_theta_0_as_it_learns(
    twins: Twins, groups: list[Group], pipeline: Pipeline, make_recipe: Callable[..., Recipe]
) -> None:
    """Its taste turned round, theta 1 learns from other segments."""
    objective, losses = TwinObjective(make_recipe(), pipeline), []
    for _ in range(2):
        with torch.no_grad():
            losses.append((objective(twins, groups) - objective.all_segments(twins.selector, groups)).item())
            expected = torch.stack(
                [slow_loss(twins.ranker, best_segments(pipeline, g, twins.selector), "listwise") for g in groups]
            )
            assert losses[-1] == pytest.approx(expected.mean().item(), rel=1e-3)
            twins.selector.head.weight.neg_()
    assert losses[0] != pytest.approx(losses[1], rel=1e-3)


def test_it_scores_as_theta_1(twins: Twins, groups: list[Group], pipeline: Pipeline) -> None:
    (row,) = best_segments(pipeline, groups[0], twins.selector)
    inputs = pad([packed for document in row for packed in document], 0)
    with torch.inference_mode():
        torch.testing.assert_close(twins(*inputs), twins.ranker(*inputs))
        torch.testing.assert_close(twins.outputs(*inputs), twins.ranker.outputs(*inputs))
        torch.testing.assert_close(twins.states(*inputs), twins.ranker.states(*inputs))
        assert not torch.allclose(twins(*inputs), twins.selector(*inputs))


def test_both_are_saved_and_loaded(twins: Twins, tiny_backbone: Path, tmp_path: Path) -> None:
    twins.save(tmp_path)
    other = Twins(make_ranker(tiny_backbone, 2), make_ranker(tiny_backbone, 3))
    other.load_weights(tmp_path)
    torch.testing.assert_close(other.state_dict(), twins.state_dict())
    torch.testing.assert_close(CrossEncoder.load(tmp_path).state_dict(), twins.ranker.state_dict())
    torch.testing.assert_close(CrossEncoder.load(tmp_path / SELECTOR).state_dict(), twins.selector.state_dict())


def test_only_twins_are_trained_so(
    tiny_backbone: Path, groups: list[Group], pipeline: Pipeline, make_recipe: Callable[..., Recipe]
) -> None:
    objective = TwinObjective(make_recipe(), pipeline, drawn=2)
    assert objective.cost(groups[0]) == 2 * BUDGET * (1 + 2), "theta 1's segment, and two of theta 0's"
    assert TwinObjective(make_recipe(), pipeline).cost(groups[0]) == 2 * BUDGET * (1 + 4)
    with pytest.raises(TypeError, match="BeST's first iteration trains Twins, not CrossEncoder"):
        objective(make_ranker(tiny_backbone, 0), groups)
