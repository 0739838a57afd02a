"""From groups to a loss, BeST's two rankers among them, against slow versions that score one sequence at a time."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from keyblock.packing import Packed, pack
from keyblock.pipeline import Pipeline
from training.data.collection import Collection
from training.data.examples import EXAMPLES, Preparation, Row, Segments, Selected, Waiting
from training.data.sampling import Group
from training.evaluate.scoring import TorchModel
from training.learn.best import TwinObjective
from training.learn.objectives import LOSSES, RankingObjective, hinge, listwise, logistic, pointwise, token_loss
from training.model.cross_encoder import CrossEncoder
from training.model.ranker_module import pad
from training.recipe import Recipe

BUDGET = 40
STATES = {"aggregator": {"name": "states", "passages": 2}}
BINB: dict[str, Any] = {"selector": {"name": "learned"}}
CASCADE: dict[str, Any] = {"selector": {"name": "learned", "keep": 2}, "aggregator": {"name": "max", "passages": 1}}
DOCUMENTS = {"river?": ("river-3", "river-0", "stone-1", "void"), "stone?": ("stone-3", "river-2", "stone-0", "stone-2")}


@pytest.fixture(scope="module")
def collection(toy_path: Path) -> Collection:
    """With a document that holds nothing."""
    collection = Collection(toy_path)
    collection.documents["void"] = collection.documents["river-0"]._replace(doc_id="void", text=" ")  # type: ignore[index]
    return collection


@dataclass
class Bench:
    """What losses are computed of."""

    backbone: Path
    collection: Collection
    recipe: Callable[..., Recipe]
    pipeline: Callable[..., Pipeline]

    def model(self, seed: int = 0, aggregator: str | None = None, dropout: float = 0.0) -> CrossEncoder:
        """Weights large enough to tell texts apart."""
        torch.manual_seed(seed)
        module = {"name": aggregator} if aggregator else None
        model = CrossEncoder.from_backbone(str(self.backbone), dropout, aggregator=module)
        torch.nn.init.normal_(model.encoder.embeddings.word_embeddings.weight)
        torch.nn.init.normal_(model.head.weight)
        return model.train()

    def groups(self, pipeline: Pipeline, examples: str = "selected") -> list[Group]:
        """A group of each of two queries, one of them with a document that holds nothing."""
        preparation, groups = Preparation(self.collection, pipeline), []
        for query, documents in DOCUMENTS.items():
            pairs = [preparation.pair(query, name) for name in documents]
            prepared = EXAMPLES[examples](pipeline).prepare(preparation.query(query), pairs, BUDGET, np.random.default_rng(0))
            groups.append(Group(query, documents, prepared, 4 * BUDGET))
        return groups


@pytest.fixture
def bench(
    tiny_backbone: Path, collection: Collection, make_recipe: Callable[..., Recipe], change_pipeline: Callable[..., Pipeline]
) -> Bench:
    return Bench(tiny_backbone, collection, make_recipe, change_pipeline)


def slow_loss(model: CrossEncoder, pipeline: Pipeline, rows_of_groups: list[list[Row]], loss: str) -> Tensor:
    """The mean over groups of the loss of their rows; each sequence alone, each document alone."""
    losses = []
    for rows in rows_of_groups:
        scores = torch.stack([torch.stack([slow_score(model, pipeline, document) for document in row]) for row in rows])
        losses.append(LOSSES[loss](scores))
    return torch.stack(losses).mean()


def slow_score(model: CrossEncoder, pipeline: Pipeline, document: list[Packed]) -> Tensor:
    states = torch.cat([model.states(*pad([packed], 0)) for packed in document])
    if model.aggregator is not None:
        return model.combine(states.unsqueeze(0), torch.ones(1, len(document), dtype=torch.bool))[0]
    scores = model.head(states).squeeze(-1)
    weights = torch.tensor([packed.weight for packed in document])
    ways = {"joint": scores[0], "max": scores.max(), "mean": scores.mean(), "sum": scores.sum()}
    return (ways | {"term_weighted": weights @ scores / weights.sum()})[pipeline.aggregator.name]


def slow_rows(pipeline: Pipeline, group: Group, chooser: CrossEncoder) -> list[Row]:
    """What a learned selector takes, each block of each document scored alone."""
    assert isinstance(group.prepared, Waiting)
    query, documents, budget, _ = group.prepared
    row = []
    for document in documents:
        cheap = pipeline.selector.cheap.scores(query, document, pipeline.frequencies)
        order = np.argsort(-cheap, kind="stable").tolist()
        asked = order[: pipeline.config.selector["keep"] or None]
        with torch.no_grad():
            logits = {b: chooser(*pad(packed_alone(pipeline, group, document, b), 0)).item() for b in asked}
        order = sorted(asked, key=lambda block: -logits[block]) + order[len(asked) :]
        best = order if pipeline.aggregator.name == "joint" else order[: pipeline.aggregator.passages]  # type: ignore[attr-defined]
        row.append([pack(query, document, np.asarray(best, dtype=np.intp), pipeline.tokenizer.template, budget)])
    return [row]


def packed_alone(pipeline: Pipeline, group: Group, document: Any, block: int) -> list[Packed]:
    assert isinstance(group.prepared, Waiting)
    return pipeline.block_sequences(group.prepared.query, document, np.asarray([block]), group.prepared.budget)


def gradients(model: CrossEncoder) -> dict[str, Tensor]:
    found = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    return found


@pytest.mark.parametrize(
    ("loss", "parts", "aggregator", "examples"),
    [
        ("hinge", {"aggregator": {"name": "max"}}, None, "selected"),
        ("listwise", {"aggregator": {"name": "mean", "passages": 2}}, None, "selected"),
        ("logistic", {"aggregator": {"name": "sum"}}, None, "selected"),
        ("pointwise", {"aggregator": {"name": "term_weighted"}}, None, "selected"),
        ("listwise", STATES, "attention", "selected"),
        ("logistic", {}, None, "gold"),
        ("pointwise", BINB, None, "segments"),
    ],
    ids=["max", "mean", "sum", "weighted", "attention", "gold", "segments"],
)
def test_the_loss_equals_a_slow_version(
    bench: Bench,
    loss: str,
    parts: dict[str, Any],
    aggregator: str | None,
    examples: str,
) -> None:
    pipeline, model = bench.pipeline(**parts), bench.model(aggregator=aggregator)
    kind, groups = EXAMPLES[examples](pipeline), bench.groups(pipeline, examples)
    rows = [kind.rows(group.prepared, TorchModel(model, pipeline.tokenizer, False).choose) for group in groups]
    fast = RankingObjective(bench.recipe(loss=loss), pipeline, kind)(model, groups)
    slow = slow_loss(model, pipeline, rows, loss)
    assert fast.shape == ()
    assert 0 < fast.item() < 50
    torch.testing.assert_close(fast, slow, rtol=1e-4, atol=1e-5)
    fast.backward()
    quick = gradients(model)
    slow.backward()
    torch.testing.assert_close(quick, gradients(model), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("parts", [BINB, CASCADE], ids=["binb", "cascade"])
@pytest.mark.parametrize("chooser_seed", [None, 1], ids=["itself", "another"])
def test_what_the_model_selects_is_trained_on(bench: Bench, parts: dict[str, Any], chooser_seed: int | None) -> None:
    """Loss and gradients are those of the brute-force selection held fixed: choosing leaves no trace in them."""
    pipeline, model = bench.pipeline(**parts), bench.model()
    chooser = None if chooser_seed is None else bench.model(chooser_seed)
    groups = bench.groups(pipeline)
    rows = [slow_rows(pipeline, group, chooser or model) for group in groups]
    loss = RankingObjective(bench.recipe(), pipeline, Selected(pipeline), chooser)(model, groups)
    loss.backward()
    quick, slow = gradients(model), slow_loss(model, pipeline, rows, "listwise")
    torch.testing.assert_close(loss, slow, rtol=1e-4, atol=1e-5)
    slow.backward()
    torch.testing.assert_close(quick, gradients(model), rtol=1e-3, atol=1e-4)
    assert model.training
    if chooser is not None:
        assert chooser.training
        assert gradients(chooser) == {}
        own = [slow_rows(pipeline, group, model) for group in groups]
        assert tokens(own) != tokens(rows), "the other one chooses otherwise"


def tokens(rows_of_groups: list[list[Row]]) -> list[list[int]]:
    return [packed.ids.tolist() for rows in rows_of_groups for row in rows for document in row for packed in document]


def test_the_model_selects_in_eval_mode(bench: Bench) -> None:
    """Dropout never chooses, nor does choosing draw from it: the loss's masks are those it has without a choice."""
    pipeline, model = bench.pipeline(**CASCADE), bench.model(dropout=0.3)
    groups = bench.groups(pipeline)
    with torch.no_grad():
        fixed = [replace(g, prepared=slow_rows(pipeline, g, model.eval())) for g in groups]
    objective = RankingObjective(bench.recipe(), pipeline, Selected(pipeline))
    losses = []
    for of in (groups, fixed):
        torch.manual_seed(3)
        losses.append(objective(model.train(), of).item())
        assert model.training
    assert losses[0] == losses[1]
    assert objective(model, groups).item() != losses[0], "dropout is on while it learns"


@pytest.mark.parametrize("parts", [BINB, STATES], ids=["binb", "states"])
def test_half_precision_stays_near_and_learns(
    bench: Bench,
    parts: dict[str, Any],
) -> None:
    pipeline = bench.pipeline(**parts)
    model = bench.model(aggregator="attention" if parts is STATES else None)
    groups, losses = bench.groups(pipeline), []
    for precision in ("fp32", "bf16"):
        loss = RankingObjective(bench.recipe(precision=precision), pipeline, Selected(pipeline))(model, groups)
        losses.append(loss)
    assert losses[1].dtype == torch.float32
    torch.testing.assert_close(losses[1], losses[0], rtol=0.1, atol=0.1)
    losses[1].backward()
    found = gradients(model)
    assert set(found) == {name for name, _ in model.named_parameters()}
    assert all(gradient.isfinite().all() for gradient in found.values())


def test_a_group_of_nothing_but_empty_documents(bench: Bench) -> None:
    """All alike, so the loss is that of equal scores."""
    for parts in ({}, BINB, CASCADE, {"aggregator": {"name": "mean"}}):
        pipeline, model = bench.pipeline(**parts), bench.model()
        preparation = Preparation(bench.collection, pipeline)
        pairs = [preparation.pair("river?", "void")] * 3
        kinds: Sequence[Any] = [Selected(pipeline), *([Segments(pipeline)] if pipeline.asks_model else [])]
        for examples in kinds:
            prepared = examples.prepare(preparation.query("river?"), pairs, BUDGET, np.random.default_rng(0))
            loss = RankingObjective(bench.recipe(), pipeline, examples)(model, [Group("river?", ("void",) * 3, prepared, 0)])
            assert loss.item() == pytest.approx(np.log(3), abs=1e-4)


SCORES = torch.tensor([[2.0, 1.5, 0.0], [0.0, 3.0, -2.0]])


def test_hinge_by_hand() -> None:
    """max(0, 1 - s+ + s-) of the pairs: 0.5, 0 (a margin of 2), 4, 0; their mean is 4.5 / 4."""
    assert hinge(SCORES).item() == pytest.approx(1.125)


def test_logistic_by_hand() -> None:
    pairs = [1 + math.exp(1.5 - 2), 1 + math.exp(0 - 2), 1 + math.exp(3 - 0), 1 + math.exp(-2 - 0)]
    assert logistic(SCORES).item() == pytest.approx(sum(map(math.log, pairs)) / 4)


def test_listwise_by_hand() -> None:
    """Cross-entropy: minus the log of the relevant document's share of exp(score), averaged over groups."""
    first = math.exp(2) / (math.exp(2) + math.exp(1.5) + 1)
    second = 1 / (1 + math.exp(3) + math.exp(-2))
    assert listwise(SCORES).item() == pytest.approx(-(math.log(first) + math.log(second)) / 2)


def test_pointwise_by_hand() -> None:
    """Minus ln p of the relevant documents and minus ln (1 - p) of the others, p the sigmoid: softplus(-s+) and softplus(s-)."""
    terms = [math.log(1 + math.exp(score)) for score in (-2, 1.5, 0, 0, 3, -2)]
    assert pointwise(SCORES).item() == pytest.approx(sum(terms) / 6)


def test_the_token_loss_is_the_mean_of_documents_with_an_answer_and_of_those_without() -> None:
    """By hand: the tokens that answer and those beside them; then a document without a passage; -1 counts nowhere."""
    marks = torch.tensor([[2.0, -1.0, 9.0], [0.5, 9.0, 9.0]])
    labels = [np.asarray([1, 0, -1], np.int8), np.asarray([0], np.int8)]
    with_answer = (math.log1p(math.exp(-2.0)) + math.log1p(math.exp(-1.0))) / 2
    without = math.log1p(math.exp(0.5))
    assert token_loss(marks, labels).item() == pytest.approx((with_answer + without) / 2)
    assert token_loss(marks, [labels[0] * 0 - 1, labels[1] * 0 - 1]).item() == 0


def test_a_query_without_an_answer_learns_by_the_pointwise_loss_alone(bench: Bench, toy_pipeline: Pipeline) -> None:
    model, groups = bench.model(), bench.groups(toy_pipeline)
    groups[1] = replace(groups[1], answered=False)
    recipe = bench.recipe(loss="listwise", precision="fp32", pointwise=0.5)
    scores = [
        torch.stack([slow_score(model, toy_pipeline, document) for document in row])
        for group in groups
        for row in EXAMPLES["selected"](toy_pipeline).rows(group.prepared, lambda _: np.zeros(0, np.float32))
    ]
    answered = listwise(scores[:1][0][None]) + 0.5 * pointwise(scores[0][None])
    none = 0.5 * torch.nn.functional.softplus(scores[1]).mean()  # the cross-entropy of "not relevant"
    found = RankingObjective(recipe, toy_pipeline, EXAMPLES["selected"](toy_pipeline))(model, groups)
    assert found.item() == pytest.approx(((answered + none) / 2).item(), rel=1e-4)


def test_tokens_are_learned_beside_the_ranking(bench: Bench, toy_pipeline: Pipeline) -> None:
    """The sum of both losses; of one pass, each sequence's labels stay its own whatever the batches are."""
    torch.manual_seed(0)
    model = CrossEncoder.from_backbone(str(bench.backbone), marks=8).train()
    examples = EXAMPLES["selected"](toy_pipeline)
    groups, expected, rng = [], [], np.random.default_rng(0)
    for group in bench.groups(toy_pipeline):
        sequences = [
            packed for row in examples.rows(group.prepared, lambda _: np.zeros(0, np.float32)) for d in row for packed in d
        ]
        labels = [rng.integers(-1, 2, len(packed.ids)).astype(np.int8) for packed in sequences]
        groups.append(replace(group, labels=labels))
        expected += [(model.marked(*pad([packed], 0))[1][0], of) for packed, of in zip(sequences, labels, strict=True)]
    longest = max(len(of) for _, of in expected)
    slow = token_loss(
        torch.stack([torch.nn.functional.pad(marks, (0, longest - len(marks))) for marks, _ in expected]),
        [of for _, of in expected],
    )
    plain = bench.recipe(loss="listwise", precision="fp32")
    marking = bench.recipe(loss="listwise", precision="fp32", marks=2.0, model={"name": "cross_encoder", "marks": 8})
    without, both = (RankingObjective(recipe, toy_pipeline, examples)(model, groups).item() for recipe in (plain, marking))
    assert both == pytest.approx(without + 2 * slow.item(), rel=1e-4)


@pytest.fixture(scope="module")
def pipeline(change_pipeline: Callable[..., Pipeline]) -> Pipeline:
    """Theta 0 chooses among the four leading segments."""
    return change_pipeline(
        segmenter={"name": "sentences", "block_tokens": 20},
        selector={"name": "learned", "keep": 4, "by": {"name": "first"}},
        aggregator={"name": "max", "passages": 1},
    )


def test_each_learns_from_its_own_loss_alone(bench: Bench, pipeline: Pipeline) -> None:
    """The gradient of theta 0, the selector, is that of all segments, theta 1's that of the best ones: the sum mixes nothing."""
    ranker, selector, groups = bench.model(0), bench.model(1), bench.groups(pipeline)
    total = TwinObjective(bench.recipe(loss="hinge"), pipeline, selector)(ranker, groups)
    every = [Segments(pipeline).rows(group.prepared, lambda _: pytest.fail("no model chooses these")) for group in groups]
    best = [slow_rows(pipeline, group, selector) for group in groups]  # I of equation 2
    assert [len(rows) for rows in every] == [4, 4]
    total.backward()
    theta1, theta0 = gradients(ranker), gradients(selector)
    chosen = slow_loss(ranker, pipeline, best, "hinge")
    chosen.backward()
    torch.testing.assert_close(theta1, gradients(ranker), rtol=1e-3, atol=1e-4)
    assert gradients(selector) == {}
    all_segments = slow_loss(selector, pipeline, every, "hinge")
    all_segments.backward()
    torch.testing.assert_close(theta0, gradients(selector), rtol=1e-3, atol=1e-4)
    assert gradients(ranker) == {}
    torch.testing.assert_close(total, chosen + all_segments, rtol=1e-4, atol=1e-5)
    assert ranker.training
    assert selector.training


def test_the_choice_follows_theta_0_as_it_learns(bench: Bench, pipeline: Pipeline) -> None:
    """Its taste turned round, theta 1 learns from other segments."""
    ranker, selector = bench.model(0), bench.model(1)
    objective = TwinObjective(bench.recipe(loss="hinge"), pipeline, selector)
    groups, losses = bench.groups(pipeline), list[float]()
    for _ in range(2):
        with torch.no_grad():
            losses.append((objective(ranker, groups) - objective.all_segments(selector, groups)).item())
            best = [slow_rows(pipeline, group, selector) for group in groups]
            assert losses[-1] == pytest.approx(slow_loss(ranker, pipeline, best, "hinge").item(), rel=1e-3)
            selector.head.weight.neg_()
    assert losses[0] != pytest.approx(losses[1], rel=1e-3)
