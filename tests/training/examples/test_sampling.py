"""Training examples: which documents meet in a group, within which budget, and that a step's batch is always the same."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from keyblock.packing import Packed
from keyblock.pipeline import Pipeline
from keyblock.selectors import SELECTORS
from training.data.collection import Collection
from training.data.examples import Gold, Preparation, Selected
from training.data.first_stage import complete_run
from training.data.sampling import Draws, Source, StepBatch
from training.data.types import CollectionError, Run
from training.recipe import Negatives, Recipe

BM25 = SELECTORS.create("bm25")
RIVERS = ["river-0", "river-1", "river-2"]


@pytest.fixture(scope="module")
def source(preparation: Preparation, toy: Collection) -> Source:
    return Source.build(preparation, "train", complete_run(toy, "train", depth=4), depth=4)


@pytest.fixture(scope="module")
def one_query(preparation: Preparation, toy: Collection) -> Source:
    """A single query, whose first stage lists every document."""
    run = {"river?": dict.fromkeys(toy.documents, 1.0)}
    return Source.build(preparation, "train", run, depth=100)


def draws(source: Source, how: Negatives, n: int = 20) -> list[list[str]]:
    """Which documents are in each of n groups drawn for the query "river?"."""
    rng, examples = np.random.default_rng(0), Selected(source.preparation.pipeline)
    return [list(source.group("river?", rng, Recipe(name="toy", negatives=how), examples, 96).documents) for _ in range(n)]


def drawer(source: Source, recipe: Recipe) -> Draws:
    return Draws({"toy": source}, recipe, Selected(source.preparation.pipeline))


def sequences_of(batch: StepBatch) -> list[Packed]:
    """Those of its groups' only rows, one a document."""
    rows = [group.prepared for group in batch.groups]
    assert all(isinstance(of_group, list) and len(of_group) == 1 for of_group in rows)
    return [packed for of_group in rows for (packed,) in of_group[0]]


def same(one: StepBatch, other: StepBatch) -> bool:
    """The same queries, documents and token ids."""
    first, second = sequences_of(one), sequences_of(other)
    ids = len(first) == len(second) and all(np.array_equal(a.ids, b.ids) for a, b in zip(first, second, strict=True))
    return ids and [(g.query, g.documents) for g in one.groups] == [(g.query, g.documents) for g in other.groups]


def test_a_group_is_packed_as_it_says(source: Source, make_recipe: Callable[..., Recipe]) -> None:
    """The rows hold the documents named, in that order, within the step's budget, as a pair alone is packed."""
    batch = drawer(source, make_recipe()).step(3)
    for group in batch.groups:
        assert group.tokens == batch.budget * 4
        for packed, doc_id in zip(sequences_of(replace(batch, groups=[group])), group.documents, strict=True):
            np.testing.assert_array_equal(packed.ids, source.preparation.pack(group.query, doc_id, batch.budget).ids)


def test_only_documents_with_a_gold_passage_are_relevant_where_that_is_trained_on(
    source: Source, preparation: Preparation, toy: Collection, make_recipe: Callable[..., Recipe]
) -> None:
    """Half of the toy's training queries have none: a pass is over the others."""
    with_gold = [query for query in source.queries if query in toy.spans]
    assert 0 < len(with_gold) < len(source.queries)
    recipe = make_recipe(queries_per_step=len(with_gold))
    draws = Draws({"toy": source}, recipe, Gold(preparation.pipeline))
    for step in range(3):
        assert sorted(group.query for group in draws.step(step).groups) == sorted(with_gold)
    others = replace(source, queries=[query for query in source.queries if query not in toy.spans])
    with pytest.raises(CollectionError, match="toy: no document relevant to a training query has a gold passage"):
        Draws({"toy": others}, recipe, Gold(preparation.pipeline)).step(0)


def test_a_group_of_passages_costs_more(one_query: Source, change_pipeline: Callable[..., Pipeline]) -> None:
    """Tokens that go through the model with gradients: of each chosen passage."""
    recipe = Recipe(name="toy", negatives=Negatives(per_query=2))
    examples = Selected(change_pipeline(aggregator={"name": "max", "passages": 3}))
    group = one_query.group("river?", np.random.default_rng(0), recipe, examples, 50)
    assert group.tokens == 50 * 3 * 3


def test_the_relevant_document_comes_first_and_never_again(one_query: Source) -> None:
    for group in draws(one_query, Negatives(per_query=7)):
        assert group[0] == "river-3"
        assert "river-3" not in group[1:]
        assert len(set(group)) == 8


def test_hard_negatives_are_those_with_the_best_block(one_query: Source, preparation: Preparation) -> None:
    best = sorted(one_query.negatives["river?"], key=lambda d: -preparation.best_block("river?", d, BM25))
    assert set(best[:3]) == set(RIVERS)
    for group in draws(one_query, Negatives(per_query=5, hard=2, hard_sample=100)):
        assert group[1:3] == best[:2]
        assert len(set(group[3:]) - set(best[:2])) == 3


def test_hard_negatives_are_looked_for_in_a_sample(one_query: Source) -> None:
    firsts = Counter(group[1] for group in draws(one_query, Negatives(per_query=1, hard=1, hard_sample=1), 100))
    assert len(firsts) > 20
    some = Counter(group[1] for group in draws(one_query, Negatives(per_query=1, hard=1, hard_sample=20), 50))
    assert sum(some[name] for name in RIVERS) > 25


def test_another_selector_may_say_what_is_hard(one_query: Source, preparation: Preparation) -> None:
    """`last` scores a document's last block by its number: the longest documents are the hardest."""
    n_blocks = {d: preparation.document(d).n_blocks for d in one_query.negatives["river?"]}
    how = Negatives(per_query=2, hard=2, hard_sample=100, hard_by={"name": "last"})
    for group in draws(one_query, how, 5):
        assert [n_blocks[name] for name in group[1:]] == [max(n_blocks.values())] * 2


def test_a_short_list_is_drawn_from_again(source: Source) -> None:
    for group in draws(source, Negatives(per_query=7)):
        assert len(group) == 8
        assert sorted(Counter(group[1:]).values()) == [2, 2, 3]
        assert set(group[1:]) == set(RIVERS)


def test_every_relevant_document_is_drawn(preparation: Preparation, toy_copy: Path) -> None:
    with (toy_copy / "qrels.tsv").open("w", encoding="utf-8") as qrels:
        qrels.write("river? 0 river-3 1\nriver? 0 river-1 2\nriver? 0 sea-0 1\nriver? 0 river-0 -1\n")
    (toy_copy / "qrels.tsv.gz").unlink()
    collection = Collection(toy_copy)
    source = Source.build(Preparation(collection, preparation.pipeline), "train", collection.run("train"), 4)
    assert source.relevant == {"river?": ["river-3", "river-1"]}  # a judged document that the corpus lacks cannot be shown
    assert sorted(source.negatives["river?"]) == ["river-0", "river-2"]
    assert {group[0] for group in draws(source, Negatives(per_query=2))} == {"river-3", "river-1"}


def test_the_depth_cuts_the_list(preparation: Preparation, toy: Collection) -> None:
    run = {"river?": {"stone-0": 3.0, "river-3": 2.0, "stone-1": 1.0, "stone-2": 0.5}}
    assert Source.build(preparation, "train", run, depth=3).negatives == {"river?": ["stone-0", "stone-1"]}


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ({}, "no query of split train has a relevant document and a negative"),
        ({"river?": {"river-3": 1.0}}, "no query of split train has a relevant document and a negative"),
        ({"river?": {"sea-0": 1.0}}, "names document 'sea-0'"),
    ],
)
def test_lists_that_nothing_can_be_drawn_from(preparation: Preparation, run: Run, said: str) -> None:
    with pytest.raises(CollectionError, match=re.escape(said)):
        Source.build(preparation, "train", run, depth=100)


def test_a_query_without_a_text_is_an_error_at_once(toy_copy: Path, toy_pipeline: Pipeline) -> None:
    queries = (toy_copy / "queries.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (toy_copy / "queries.jsonl").write_text("".join(q for q in queries if "river?" not in q), encoding="utf-8")
    collection = Collection(toy_copy)
    with pytest.raises(CollectionError, match="query 'river\\?'"):
        Source.build(Preparation(collection, toy_pipeline), "train", collection.run("train"), 4)


def test_a_pass_meets_every_query_once(source: Source, make_recipe: Callable[..., Recipe]) -> None:
    """Sixteen queries in steps of three: the passes end within steps, and each has an order of its own."""
    draws, n = drawer(source, make_recipe(queries_per_step=3)), len(source.queries)
    assert n == 16
    drawn = [group.query for step in range(n) for group in draws.step(step).groups]
    passes = [drawn[first : first + n] for first in range(0, 3 * n, n)]
    assert [sorted(one) for one in passes] == [sorted(source.queries)] * 3
    assert len({tuple(one) for one in passes}) == 3
    other = drawer(source, make_recipe(queries_per_step=n, seed=1)).step(0)
    assert [group.query for group in other.groups] not in passes


def test_passes_of_each_collection_are_its_own(source: Source, make_recipe: Callable[..., Recipe]) -> None:
    """Whatever their shares, and with steps of different sizes."""
    half = len(source.queries) // 2
    parts = {"a": replace(source, queries=source.queries[:half]), "b": replace(source, queries=source.queries[half:])}
    recipe = make_recipe(mixture={"a": 1, "b": 4}, budgets={48: 1.0, 96: 1.0}, tokens_per_step=1000)
    draws = Draws(parts, recipe, Selected(source.preparation.pipeline))
    drawn = [group.query for step in range(40) for group in draws.step(step).groups]
    for part in parts.values():
        of_part = [query for query in drawn if query in part.queries]
        assert len(of_part) >= 2 * half
        assert sorted(of_part[:half]) == sorted(of_part[half : 2 * half]) == sorted(part.queries)


@pytest.mark.parametrize("gold", [False, True])
def test_a_resumed_run_draws_what_it_would_have_drawn(source: Source, make_recipe: Callable[..., Recipe], gold: bool) -> None:
    recipe, examples = make_recipe(budgets={48: 1.0, 96: 1.0}), (Gold if gold else Selected)(source.preparation.pipeline)
    whole, resumed = (Draws({"toy": source}, recipe, examples) for _ in range(2))
    batches = [whole.step(step) for step in range(8)]
    for step in (5, 6, 7, 2, 2):
        assert same(resumed.step(step), batches[step])


@pytest.mark.parametrize("tokens", [64, 2048, 10_000])
def test_shape_and_budget_of_a_step(source: Source, make_recipe: Callable[..., Recipe], tokens: int) -> None:
    recipe = make_recipe(tokens_per_step=tokens, budgets={48: 1.0, 96: 1.0})
    draws = drawer(source, recipe)
    batches = [draws.step(step) for step in range(12)]
    assert {batch.budget for batch in batches} == {48, 96}
    for batch in batches:
        assert {len(group.documents) for group in batch.groups} == {4}
        assert len(batch.groups) == max(1, tokens // (batch.budget * 4))
        assert max(len(packed.ids) for packed in sequences_of(batch)) <= batch.budget


def test_budgets_are_drawn_by_their_shares(source: Source, make_recipe: Callable[..., Recipe]) -> None:
    recipe = make_recipe(tokens_per_step=64, budgets={48: 1, 64: 3, 96: 0})
    draws = drawer(source, recipe)
    drawn = Counter(draws.step(step).budget for step in range(300))
    assert drawn[96] == 0
    assert 0.17 < drawn[48] / 300 < 0.33


def test_collections_are_drawn_by_their_shares(source: Source, make_recipe: Callable[..., Recipe]) -> None:
    rivers, stones = (replace(source, queries=[query]) for query in ("river?", "stone?"))

    def drawn(mixture: dict[str, float]) -> Counter[str]:
        recipe = make_recipe(mixture=mixture, budgets={96: 1}, tokens_per_step=20_000)
        batch = Draws({"a": rivers, "b": stones}, recipe, Selected(source.preparation.pipeline)).step(0)
        return Counter(group.query for group in batch.groups)

    assert drawn({"a": 0, "b": 5}) == {"stone?": 52}
    assert 0.05 < drawn({"a": 1, "b": 4})["river?"] / 52 < 0.4
    assert 0.3 < drawn({})["river?"] / 52 < 0.7


def test_some_queries_are_left_without_their_relevant_document(one_query: Source) -> None:
    recipe = Recipe(name="toy", negatives=Negatives(per_query=3), pointwise=1.0, unanswered=0.25)
    rng, examples = np.random.default_rng(0), Selected(one_query.preparation.pipeline)
    groups = [one_query.group("river?", rng, recipe, examples, 96) for _ in range(200)]
    assert all(group.answered == (group.documents[0] == "river-3") for group in groups)
    assert all(len(group.documents) == (4 if group.answered else 3) for group in groups)
    assert 30 < sum(not group.answered for group in groups) < 70


def test_each_sequence_of_a_group_has_labels_where_tokens_are_learned(one_query: Source) -> None:
    """The gold passage of river-3 is known; of the other documents no token answers."""
    recipe = Recipe(name="toy", model={"name": "cross_encoder", "marks": 8}, marks=1.0, negatives=Negatives(per_query=2))
    examples = Selected(one_query.preparation.pipeline)
    group = one_query.group("river?", np.random.default_rng(0), recipe, examples, 96)
    (row,) = group.prepared
    assert [len(labels) for labels in group.labels] == [len(packed.ids) for (packed,) in row]
    assert [bool((labels == 1).any()) for labels in group.labels] == [True, False, False]
    assert all((labels == 0).any() for labels in group.labels)
    assert not one_query.group("river?", np.random.default_rng(0), Recipe(name="toy"), examples, 96).labels


def test_gold_passages_of_collections_that_are_not_marked_teach_no_token(one_query: Source) -> None:
    """Their relevant documents are left out; documents that do not answer still teach that no token does."""
    named = {True: one_query.preparation.collection.name, False: "another"}
    for marked, name in named.items():
        recipe = Recipe(
            name="toy", model={"name": "cross_encoder", "marks": 8}, marks=1.0, marked=(name,), negatives=Negatives(per_query=2)
        )
        group = one_query.group("river?", np.random.default_rng(0), recipe, Selected(one_query.preparation.pipeline), 96)
        assert [bool((labels == 1).any()) for labels in group.labels] == [marked, False, False]
        assert [bool((labels == 0).any()) for labels in group.labels] == [marked, True, True]
