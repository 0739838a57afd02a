"""Learning a teacher's scores: losses by hand and beside slow versions, what is compared, a student that finds the answer."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from keyblock.packing import Packed
from keyblock.pipeline import Pipeline
from training.data.collection import Collection
from training.data.examples import Preparation, Row, Selected
from training.data.sampling import Group
from training.declarations import EncoderShape
from training.evaluate.scoring import score
from training.learn.distillation import (
    DISTANCES,
    DistillationObjective,
    lambda_loss,
    margin_loss,
    softmax_loss,
    squared_loss,
    unexplained,
)
from training.learn.loop import make_optimizer
from training.model.cross_encoder import CrossEncoder
from training.model.ranker_module import RankerModule
from training.recipe import Distillation, Recipe

BUDGET = 40
scores = st.lists(st.integers(-40, 40), min_size=1, max_size=7, unique=True).map(lambda tenths: torch.tensor(tenths) / 10.0)


def test_lambda_by_hand() -> None:
    """Three passages; the teacher's best is the first, its second best the last; two gain 3 and 1, the other 0.

    The best DCG is 3 / log2(2) + 1 / log2(3) = 3.6309, so the gains are 0.8262, 0 and 0.2754. The student ranks them 2, 1, 3 by
    scores of 0, 1 and -1. Of neighbours a swap is worth 1 - 1 / log2(3) = 0.3691 of the gains' difference, two places apart
    1 / log2(3) - 1 / log2(4) = 0.1309. Unsure in bits is log2(1 + exp(other - better)): first over second log2(1 + e) = 1.8946,
    first over last log2(1 + 1 / e) = 0.4519, last over second log2(1 + e^2) = 3.0685.
    """
    found = lambda_loss(torch.tensor([0.0, 1.0, -1.0]), torch.tensor([5.0, -2.0, 3.0]), best=2)
    expected = 0.3691 * 0.8262 * 1.8946 + 0.3691 * (0.8262 - 0.2754) * 0.4519 + 0.1309 * 0.2754 * 3.0685
    assert found.item() == pytest.approx(expected, abs=1e-3)


def test_unexplained_by_hand() -> None:
    """Two sequences of two and one real tokens; what stands behind them is padding and counts nothing.

    The teacher's states are 0, 3 and 6 in one dimension, around 3: 9 + 0 + 9 = 18. The student is off by 1, 1 and 2: 6.
    """
    teacher = torch.tensor([[[0.0], [3.0]], [[6.0], [99.0]]])
    student = torch.tensor([[[1.0], [2.0]], [[8.0], [-7.0]]])
    lengths = torch.tensor([2, 1])
    assert unexplained(student, teacher, lengths).item() == pytest.approx(6 / 18)
    assert unexplained(teacher, teacher, lengths).item() == 0
    mean = torch.full_like(teacher, 3.0)  # who says the same of every token explains nothing
    assert unexplained(mean, teacher, lengths).item() == pytest.approx(1)


def test_margin_and_softmax_by_hand() -> None:
    """Margins of 2 and 1 beside 3 and 1, and 1 beside 2; chances of 3/4 and 1/4 beside 1/2 and 1/2."""
    student, teacher = torch.tensor([2.0, 0.0, 1.0]), torch.tensor([7.0, 4.0, 6.0])
    assert margin_loss(student, teacher).item() == pytest.approx(((2 - 3) ** 2 + (1 - 1) ** 2 + (-1 + 2) ** 2) / 3)
    found = softmax_loss(torch.zeros(2), torch.tensor([math.log(3), 0.0])).item()
    assert found == pytest.approx(0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5))


def slow_lambda(student: list[float], teacher: list[float], best: int) -> float:
    def placed(values: list[float]) -> list[int]:
        return [sorted(values, reverse=True).index(value) + 1 for value in values]

    gains = [2 ** max(best + 1 - rank, 0) - 1 for rank in placed(teacher)]
    ideal = sum(gain / math.log2(1 + rank) for rank, gain in enumerate(sorted(gains, reverse=True), 1))
    ranks, total = placed(student), 0.0
    for i, better in enumerate(gains):
        for j, worse in enumerate(gains):
            if better > worse:
                apart = abs(ranks[i] - ranks[j])
                worth = 1 / math.log2(1 + apart) - 1 / math.log2(2 + apart)
                total += (better - worse) / ideal * worth * math.log2(1 + math.exp(student[j] - student[i]))
    return total


@given(student=scores, seed=st.integers(0, 99), best=st.integers(1, 5))
def test_lambda_beside_a_slow_version(student: Tensor, seed: int, best: int) -> None:
    teacher = torch.from_numpy(np.random.default_rng(seed).permutation(len(student))).float()
    found = lambda_loss(student, teacher, best).item()
    assert found == pytest.approx(slow_lambda(student.tolist(), teacher.tolist(), best), rel=1e-4, abs=1e-6)


def test_squared_by_hand() -> None:
    """Errors of 5, 4 and 5; and of a list of one, which has no margin, 3."""
    assert squared_loss(torch.tensor([2.0, 0.0, 1.0]), torch.tensor([7.0, 4.0, 6.0])).item() == pytest.approx((25 + 16 + 25) / 3)
    assert squared_loss(torch.tensor([2.0]), torch.tensor([5.0])).item() == 9


@pytest.mark.parametrize("name", sorted(DISTANCES.keys() - {"squared"}))
def test_a_list_of_one_teaches_nothing(name: str) -> None:
    student = torch.tensor([2.0], requires_grad=True)
    loss = DISTANCES[name](student, torch.tensor([5.0]))
    loss.backward()
    assert (loss.item(), student.grad.item()) == (0, 0)


@pytest.fixture(scope="module")
def pipeline(change_pipeline: Callable[..., Pipeline]) -> Pipeline:
    """Each sentence is a passage."""
    return change_pipeline(
        segmenter={"name": "sentences", "block_tokens": 20}, selector={"name": "first"}, aggregator={"name": "max"}
    )


def groups_of(collection: Collection, pipeline: Pipeline, queries: Sequence[str], budget: int = BUDGET) -> list[Group]:
    """Of each query the document with its answer, and one that is silent."""
    preparation, groups = Preparation(collection, pipeline), []
    for query in queries:
        documents = (f"{query[:-1]}-3", f"{query[:-1]}-0")
        pairs = [preparation.pair(query, name) for name in documents]
        prepared = Selected(pipeline).prepare(preparation.query(query), pairs, budget, np.random.default_rng(0))
        groups.append(Group(query, documents, prepared, 2 * budget))
    return groups


def rows_of(groups: Sequence[Group]) -> list[Row]:
    return [row for group in groups for row in group.prepared]  # type: ignore[misc]


@pytest.mark.parametrize("among", ["passages", "documents"])
@pytest.mark.parametrize("loss", ["margin", "lambda"])
def test_what_is_compared_beside_a_slow_version(
    among: str, loss: str, toy: Collection, pipeline: Pipeline, tiny_backbone: Path, make_recipe: Callable[..., Recipe]
) -> None:
    """Each sequence alone; among documents the teacher's own aggregator speaks, and the pipeline's for the student."""
    torch.manual_seed(0)
    student, teacher = (CrossEncoder.from_backbone(str(tiny_backbone), aggregator=of) for of in (None, {"name": "max"}))
    for model in (student, teacher.eval()):  # weights large enough to tell texts apart
        torch.nn.init.normal_(model.encoder.embeddings.word_embeddings.weight)
        torch.nn.init.normal_(model.head.weight)
    groups = groups_of(toy, pipeline, ["river?", "stone?"])
    how = Distillation(teacher="runs/teacher", loss=loss, among=among, best=2)
    found = DistillationObjective(make_recipe(), how, pipeline, Selected(pipeline), teacher)(student, groups)

    def alone(model: RankerModule, packed: Packed) -> float:
        return float(score(model, [packed], 0, bf16=False)[0])

    def taught(document: list[Packed]) -> float:
        states = torch.cat([teacher.states(*teacher.inputs([one], 0)) for one in document])
        return teacher.combine(states[None], torch.ones(1, len(document), dtype=torch.bool)).item()

    lists = []
    for row in rows_of(groups):
        passages = [([alone(student, one) for one in of], [alone(teacher, one) for one in of]) for of in row]
        documents = [max(own) for own, _ in passages], [taught(of) for of in row]
        lists += passages if among == "passages" else [documents]
    distances = [
        slow_lambda(list(own), list(theirs), 2)
        if loss == "lambda"
        else np.mean([(own[i] - own[j] - theirs[i] + theirs[j]) ** 2 for i in range(len(own)) for j in range(i)])
        for own, theirs in lists
    ]
    assert found.item() == pytest.approx(np.mean(distances), rel=1e-3)
    found.backward()
    assert all(weight.grad is None for weight in teacher.parameters())
    assert student.head.weight.grad.abs().sum() > 0


def test_states_are_learned_beside_scores_and_padding_changes_nothing(
    toy: Collection, change_pipeline: Callable[..., Pipeline], tiny_backbone: Path, make_recipe: Callable[..., Recipe]
) -> None:
    """The sum of both, each sequence alone; a student that is its teacher has nothing to learn, and soon another has less."""
    torch.manual_seed(0)
    joint = change_pipeline()
    teacher = CrossEncoder.from_backbone(str(tiny_backbone)).eval()
    student = CrossEncoder.from_backbone(str(tiny_backbone), shape=EncoderShape(layers=1))
    for weight in (teacher.head.weight, *(one for one in teacher.encoder.encoder.parameters() if one.ndim > 1)):
        torch.nn.init.normal_(weight, std=0.3)  # a tiny backbone's layers hardly change a state
    student.head.load_state_dict(teacher.head.state_dict())
    groups = [*groups_of(toy, joint, ["river?"]), *groups_of(toy, joint, ["stone?"], BUDGET - 8)]
    how = Distillation(teacher="runs/teacher", loss="squared", among="documents", states=3.0)
    objective = DistillationObjective(make_recipe(precision="fp32"), how, joint, Selected(joint), teacher)
    assert objective(teacher, groups).item() == 0

    def alone(model: CrossEncoder, packed: Packed) -> tuple[float, Tensor]:
        with torch.inference_mode():
            state, tokens = model.read(*model.inputs([packed], 0))
            return float(model.scores(state)), tokens[0]

    packed = [one for row in rows_of(groups) for document in row for one in document]
    assert len({len(one.ids) for one in packed}) > 1, "some have padding when they are read together"
    own, theirs = ([alone(model, one) for one in packed] for model in (student, teacher))
    squared = np.mean([(a - b) ** 2 for (a, _), (b, _) in zip(own, theirs, strict=True)])
    learned, taught = (torch.cat([tokens for _, tokens in of]) for of in (own, theirs))
    left = ((learned - taught) ** 2).sum() / ((taught - taught.mean(0)) ** 2).sum()
    loss = objective(student, groups)
    assert loss.item() == pytest.approx(squared + 3.0 * left.item(), rel=1e-3)

    optimizer = make_optimizer(make_recipe(optimizer={"encoder_lr": 1e-3}).optimizer, student)
    for _ in range(10):
        optimizer.zero_grad()
        objective(student, groups).backward()
        optimizer.step()
    assert objective(student, groups).item() < 0.7 * loss.item()
