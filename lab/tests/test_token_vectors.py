"""Training token vectors on a language of synonyms: no query shares a word with its gold block."""

from pathlib import Path

import numpy as np
import pytest
import torch

from lab.token_vectors import (
    Bags,
    Draws,
    Passages,
    Projection,
    Question,
    StaticVectors,
    Teacher,
    Training,
    VectorsRecipe,
    learning_rate,
    negatives,
    quantised,
    rarity,
    thinned,
)

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
    rng, found, questions = np.random.default_rng(1), Passages(), list[Question]()
    for _ in range(120):
        first, meant = len(found.texts), rng.choice(WORDS, 5, replace=False)
        for word in meant:
            found.tokens.append(np.append(rng.choice(FILLERS, 6), WORDS + word).astype(np.int32))
        asked = int(rng.integers(5))
        found.tokens.append(np.asarray([meant[asked], FILLERS[0], FILLERS[1]], np.int32))
        found.texts += [""] * 6
        questions.append(Question(first + 5, first, np.arange(5) == asked, rng.random(5)))
    found.questions["toy"] = questions
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
    best = [int(np.argmax(vectors[q.blocks] @ vectors[q.query])) for q in passages.questions["toy"]]
    return float(np.mean([q.right[block] for q, block in zip(passages.questions["toy"], best, strict=True)]))


def test_synonyms_are_learned(passages: Passages, teacher: Teacher, tmp_path: Path) -> None:
    started = training(passages, teacher, tmp_path)
    assert found_first(started.model, passages) < 0.5
    stopped_at: list[int] = []
    started.run(lambda step, _: stopped_at.append(step))
    assert found_first(started.model, passages) > 0.95
    assert stopped_at == [140]


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
    monkeypatch.setattr("lab.token_vectors.CHECKPOINT_EVERY", 10)
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
    by_query = {q.query: q for q in passages.questions["toy"]}
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
    question = Question(10, 3, right, np.asarray([1, 9, 8, 7, 5, 2, 0.0]))
    recipe = VectorsRecipe(hard=2, hardest=2, random=1)
    drawn = [negatives(question, recipe, np.random.default_rng(seed)) for seed in range(30)]
    assert all({2, 4} <= set(blocks) and not right[blocks].any() for blocks in drawn)
    assert set().union(*drawn) == {0, 2, 4, 5, 6}
    all_right = Question(10, 3, np.ones(2, np.bool_), np.zeros(2))
    assert negatives(all_right, recipe, np.random.default_rng(0)) == []


def test_a_mixture_without_any_of_the_collections(passages: Passages, teacher: Teacher) -> None:
    with pytest.raises(ValueError, match="mixture: none of its collections has questions; there are toy"):
        Draws(passages, teacher, RECIPE.model_copy(update={"mixture": {"other": 1.0}}))


def test_the_rate_rises_and_falls() -> None:
    rates = [learning_rate(step, 1000) for step in range(1000)]
    assert rates[0] == 0.02
    assert max(rates) == rates[49] == pytest.approx(0.951)
    assert rates[-1] == 0.05


RNG = np.random.default_rng(3)


def test_a_text_is_the_weighted_sum_of_its_tokens() -> None:
    table, weights = RNG.normal(size=(6, 4)).astype(np.float32), np.asarray([1, 2, 0.5, 1, 3, 1], np.float32)
    texts = [np.asarray(ids, np.int32) for ids in ([1, 4, 4], [], [0], [5, 2])]
    model = StaticVectors(table, weights)
    with torch.inference_mode():
        vectors = model(Bags.of(texts)).numpy()
    for ids, vector in zip(texts, vectors, strict=True):
        total = sum((weights[i] * table[i] for i in ids), start=np.zeros(4))
        np.testing.assert_allclose(vector, total / (np.linalg.norm(total) or 1), atol=1e-5)
    np.testing.assert_allclose(model.folded(), table * weights[:, None], rtol=1e-5)


def test_a_projection_keeps_the_directions_that_differ() -> None:
    """Points in a plane of five dimensions keep their distances in two."""
    plane = np.linalg.qr(RNG.normal(size=(5, 2)))[0].T
    points = (RNG.normal(size=(40, 2)) @ plane + 7).astype(np.float32)
    flat = Projection.of(points, 2)(points)
    assert flat.shape == (40, 2)
    distances = [np.linalg.norm(x[:, None] - x[None], axis=2) for x in (points, flat)]
    np.testing.assert_allclose(*distances, atol=1e-4)


def test_too_few_vectors_for_a_projection() -> None:
    with pytest.raises(ValueError, match="3 vectors of 5 dimensions cannot be cut to 4"):
        Projection.of(np.zeros((3, 5), np.float32), 4)


def test_common_tokens_weigh_little() -> None:
    texts = [np.asarray([0] * 900 + [1] * 99, np.int32), np.asarray([2], np.int32)]
    weights = rarity(texts, 4)
    np.testing.assert_allclose(weights, 1e-3 / (1e-3 + np.asarray([0.9, 0.099, 0.001, 0])), rtol=1e-5)


def test_bytes_are_near_the_table() -> None:
    table = RNG.normal(size=(50, 16)).astype(np.float32) * RNG.uniform(0.01, 30, size=(50, 1)).astype(np.float32)
    table[7] = 0
    rounded, scales = quantised(table)
    assert rounded.dtype == np.int8
    assert (np.abs(rounded[np.arange(50) != 7]).max(1) == 127).all()
    assert (np.abs(rounded * scales[:, None] - table) <= scales[:, None] / 2 + 1e-6).all()
    assert not rounded[7].any()
