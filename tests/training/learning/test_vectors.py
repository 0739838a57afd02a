"""Training token vectors on a language of synonyms: no query shares a word with its gold block."""

from pathlib import Path

import numpy as np
import pytest
import torch

from training.evaluate.selection import Passages, Question
from training.learn.vectors import Draws, Teacher, Training, VectorsRecipe, learning_rate, negatives, thinned
from training.model.static_vectors import Bags, Projection, StaticVectors

WORDS = 20  # of queries; word i of a query and word WORDS + i of a block mean the same
FILLERS = np.arange(2 * WORDS, 2 * WORDS + 10)
RECIPE = VectorsRecipe(
    dimensions=12,
    distil_steps=20,
    distil_texts=16,
    steps=120,
    step_questions=16,
    hard=2,
    hardest=3,
    random=1,
    thin=0.0,
    lr=0.05,
    weight_lr=0.05,
)


@pytest.fixture(scope="module")
def passages() -> Passages:
    """Documents of five blocks, each with a word of its own among fillers; a query asks for one of them by the other word."""
    rng, found = np.random.default_rng(1), Passages()
    for _ in range(120):
        first, meant = len(found.texts), rng.choice(WORDS, 5, replace=False)
        for word in meant:
            found.tokens.append(np.append(rng.choice(FILLERS, 6), WORDS + word).astype(np.int32))
        asked = int(rng.integers(5))
        found.tokens.append(np.asarray([meant[asked], FILLERS[0], FILLERS[1]], np.int32))
        found.texts += [""] * 6
        found.questions.append(Question(first + 5, first, np.arange(5) == asked, rng.random(5), 0.0))
    found.shares["toy"] = 120
    return found


@pytest.fixture(scope="module")
def teacher(passages: Passages) -> Teacher:
    """Knows half of the documents, and what their words mean."""
    meanings = np.random.default_rng(2).normal(size=(WORDS, 12)).astype(np.float32)
    read = np.arange(len(passages.texts) // 2)
    vectors = np.stack([meanings[[t % WORDS for t in passages.tokens[i] if t < 2 * WORDS]].sum(0) for i in read])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return Teacher.of(len(passages.texts), read, vectors, Projection.of(vectors, 12))


def training(passages: Passages, teacher: Teacher, directory: Path, recipe: VectorsRecipe = RECIPE) -> Training:
    table = 0.35 * np.random.default_rng(3).normal(size=(2 * WORDS + 10, recipe.dimensions)).astype(np.float32)
    directory.mkdir(exist_ok=True)
    return Training(StaticVectors(table, np.ones(len(table), np.float32)), Draws(passages, teacher, recipe), directory)


def found_first(model: StaticVectors, passages: Passages) -> float:
    with torch.inference_mode():
        vectors = model(Bags.of(passages.tokens)).numpy()
    best = [int(np.argmax(vectors[q.blocks] @ vectors[q.query])) for q in passages.questions]
    return float(np.mean([q.right[block] for q, block in zip(passages.questions, best, strict=True)]))


def test_synonyms_are_learned(passages: Passages, teacher: Teacher, tmp_path: Path) -> None:
    started = training(passages, teacher, tmp_path)
    assert found_first(started.model, passages) < 0.5
    stopped_at: list[int] = []
    started.run(lambda step, _: stopped_at.append(step))
    assert found_first(started.model, passages) > 0.95
    assert stopped_at == [140]


def test_a_teacher_alone_teaches_synonyms_too(passages: Passages, teacher: Teacher, tmp_path: Path) -> None:
    alone = training(passages, teacher, tmp_path, RECIPE.model_copy(update={"gold": 0.0, "distil_steps": 0}))
    alone.run()
    assert found_first(alone.model, passages) > 0.9


def test_distillation_comes_near_the_teacher(passages: Passages, teacher: Teacher, tmp_path: Path) -> None:
    recipe = RECIPE.model_copy(update={"steps": 0, "distil_steps": 150})
    distilled = training(passages, teacher, tmp_path, recipe)
    texts = np.arange(len(passages.texts) // 2)
    before = distilled.distillation_loss(texts).item()
    distilled.run()
    assert distilled.distillation_loss(texts).item() < before / 2


def test_an_interrupted_run_ends_as_another(
    passages: Passages, teacher: Teacher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.learn.vectors.CHECKPOINT_EVERY", 10)
    whole = training(passages, teacher, tmp_path / "whole")
    whole.run()

    def stop(step: int, _: float) -> None:
        if step == 60:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        training(passages, teacher, tmp_path / "cut").run(stop)
    resumed = training(passages, teacher, tmp_path / "cut")
    resumed.run()
    np.testing.assert_array_equal(resumed.model.folded(), whole.model.folded())


def test_a_batch_is_what_it_says(passages: Passages, teacher: Teacher) -> None:
    batch = Draws(passages, teacher, RECIPE).questions(4)
    by_query = {q.query: q for q in passages.questions}
    for row, (number, gold) in enumerate(zip(batch.questions, batch.gold, strict=True)):
        question = by_query[int(number)]
        assert question.right[batch.blocks[gold] - question.first]
        own = [place for place in np.flatnonzero(batch.hidden[row]) if place != gold]
        assert all(question.right[batch.blocks[place] - question.first] for place in own)
    again = Draws(passages, teacher, RECIPE).questions(4)
    np.testing.assert_array_equal(batch.blocks, again.blocks)


def test_queries_lose_words_of_the_gold_block(passages: Passages, teacher: Teacher) -> None:
    """Only the fillers can be shared here, and two tokens are always left."""
    recipe = RECIPE.model_copy(update={"drop_queries": 1.0, "drop_tokens": 1.0})
    batch = Draws(passages, teacher, recipe).questions(0)
    lost = 0
    for number, query, gold in zip(batch.questions, batch.queries, batch.gold, strict=True):
        whole = passages.tokens[number]
        kept = whole[~np.isin(whole, passages.tokens[batch.blocks[gold]])]
        np.testing.assert_array_equal(query, kept if len(kept) >= 2 else whole)
        lost += len(whole) - len(query)
    assert lost > 0
    untouched = Draws(passages, teacher, RECIPE.model_copy(update={"drop_queries": 0.0})).questions(0)
    assert all((q == passages.tokens[n]).all() for n, q in zip(untouched.questions, untouched.queries, strict=True))


def test_thinned_texts_keep_their_order_and_two_tokens() -> None:
    tokens, rng = np.arange(1000, dtype=np.int32), np.random.default_rng(0)
    kept = thinned(tokens, 0.3, rng)
    assert 600 < len(kept) < 800
    assert (np.diff(kept) > 0).all()
    assert all(2 <= len(thinned(tokens[:3], 0.9, rng)) <= 3 for _ in range(50))
    np.testing.assert_array_equal(thinned(tokens, 0.0, rng), tokens)


def test_negatives_hold_no_passage_and_the_hardest_are_among_them() -> None:
    right = np.asarray([False, True, False, True, False, False, False])
    question = Question(10, 3, right, np.asarray([1, 9, 8, 7, 5, 2, 0.0]), 0.0)
    recipe = VectorsRecipe(hard=2, hardest=2, random=1)
    drawn = [negatives(question, recipe, np.random.default_rng(seed)) for seed in range(30)]
    assert all({2, 4} <= set(blocks) and not right[blocks].any() for blocks in drawn)
    assert set().union(*drawn) == {0, 2, 4, 5, 6}
    all_right = Question(10, 3, np.ones(2, np.bool_), np.zeros(2), 0.0)
    assert negatives(all_right, recipe, np.random.default_rng(0)) == []


def test_a_mixture_without_any_of_the_collections(passages: Passages, teacher: Teacher) -> None:
    with pytest.raises(ValueError, match="mixture: none of its collections has questions; there are toy"):
        Draws(passages, teacher, RECIPE.model_copy(update={"mixture": {"other": 1.0}}))


def test_the_rate_rises_and_falls() -> None:
    rates = [learning_rate(step, 1000) for step in range(1000)]
    assert rates[0] == 0.02
    assert max(rates) == rates[49] == pytest.approx(0.951)
    assert rates[-1] == 0.05
