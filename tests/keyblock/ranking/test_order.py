from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.description import PipelineConfig
from keyblock.fusion import Activation, FirstStage, Fusion
from keyblock.packing import Packed
from keyblock.pipeline import Pipeline, Selection, single_reach
from keyblock.pooled import Shared
from keyblock.ranking.order import (
    LOWEST,
    UNREAD,
    Block,
    Candidate,
    Ranking,
    block_scores,
    candidate,
    first_to_read,
    prior_features,
    prior_scores,
    rank,
    with_first_stage,
    without_skipped,
)

FUSION = Fusion(bias=-1.0, logit=2.0, best_block=0.5)
PACKED = Packed(np.arange(10, dtype=np.int32), 3, np.zeros(1, np.intp))


def run(features: list[tuple[float, float] | None], raw: bool = False) -> Ranking:
    """Rank documents given as (logit, best block's score), None for one without a block."""
    candidates = [Candidate([PACKED] if f else [], np.asarray([f[1] if f else 0.0, 0, 0, 0, 0]), []) for f in features]
    logits = np.asarray([f[0] if f else -np.inf for f in features], dtype=np.float32)
    return rank(candidates, logits, FUSION, 128, activation=None if raw else Activation())


def test_worked_example() -> None:
    ranking = run([(1.0, 0.0), None, (1.0, 2.0), (-1.0, 0.0)])
    assert ranking.order == [2, 0, 3, 1]
    # 2 * logit + 0.5 * best block - 1 is 1, 2 and -3; the sigmoid of each
    assert ranking.scores == pytest.approx([0.731059, 0.0, 0.880797, 0.047426], abs=1e-6)
    assert ranking.scored_by == ["model", "order", "model", "model"]
    assert (ranking.budget, ranking.n_tokens) == (128, 30)


def test_raw_scores_stay_logits_and_the_unscored_stay_last() -> None:
    assert run([(1.0, 0.0), None], raw=True).scores.tolist() == [1.0, LOWEST]
    ranking = run([None, (-500.0, 0.0)], raw=True)
    assert (ranking.order, ranking.scores.tolist()) == ([1, 0], [-1001.0, -1001.0])


def shared(*counts: float, foreign: bool = True, unknown: bool = False) -> Shared:
    """A document of one block that has the query's terms so strongly."""
    there = np.asarray(counts)
    return Shared(there[:, None].astype(np.float32), (there > 0).astype(np.intp), 1, foreign, unknown)


NOTHING = shared(0.0, 0.0)


def of_scripts(*documents: Shared | None) -> Ranking:
    """Documents whose logits and blocks speak for the last one most; the model knows the script and the language of None."""
    candidates = [Candidate([PACKED], np.asarray([number, 0, 0, 0, 0]), [], shared=one) for number, one in enumerate(documents)]
    return rank(candidates, np.arange(len(documents), dtype=np.float32), FUSION, 128)


@pytest.mark.parametrize("documents", [(NOTHING, NOTHING, NOTHING, NOTHING), (shared(0, 0.1), shared(0.5, 0.5), NOTHING, None)])
def test_where_blocks_do_not_compare_texts_in_another_script_stay_in_the_order_given(documents: list[Shared | None]) -> None:
    """Because they share nothing with the query, or because it is not known of all what they share."""
    ranking = of_scripts(*documents)
    assert ranking.order == [0, 1, 2, 3]
    assert set(ranking.scored_by) == {"order"}
    assert (ranking.foreign, ranking.without_model, ranking.n_tokens) == (4 - (None in documents), True, 40)
    assert ranking.scores.tolist() == [0.0] * 4, "nothing is known of their relevance"


def test_texts_in_another_script_are_ordered_by_blocks_beside_the_order_given() -> None:
    """Third by its blocks and first as given is 1/5 + 1/3, and the other way round as much; second in both is less."""
    ranking = of_scripts(shared(0.1, 0.0), shared(0.5, 0.0), shared(0.5, 0.5), NOTHING)
    assert ranking.order == [0, 2, 1, 3]
    assert set(ranking.scored_by) == {"selector"}
    assert (ranking.without_model, ranking.unknown) == (True, 0)
    assert 0.01 > ranking.scores[0] == ranking.scores[2] > ranking.scores[1]


def test_what_is_rare_in_the_request_counts_where_the_table_does_not_know_the_language() -> None:
    """The second term stands in all documents but the first, and so is worth little; logits and the table speak for the last."""
    few, many = ([shared(*counts, foreign=False, unknown=told) for told in (True, False)] for counts in ((0.9, 0.0), (0.0, 0.9)))
    documents = [few[0], *[many[0]] * 6, *[many[1]] * 3]  # most documents are of no language that it knows
    assert of_scripts(*[None] * 10).order[0] == 9
    candidates = [Candidate([PACKED], np.asarray([number, 0, 0, 0, 0]), [], shared=one) for number, one in enumerate(documents)]
    ranking = rank(candidates, np.zeros(10, np.float32), FUSION, 128)
    assert ranking.order == list(range(10))
    assert set(ranking.scored_by) == {"model"}
    assert (ranking.foreign, ranking.unknown, ranking.without_model) == (0, 7, False)


def test_documents_without_text_stay_last_among_foreign_ones() -> None:
    foreign = Candidate([PACKED], np.zeros(5), [], shared=NOTHING)
    candidates = [Candidate([], np.zeros(5), []), foreign, UNREAD, foreign]
    ranking = rank(candidates, np.asarray([-np.inf, 1, -np.inf, 2], np.float32), FUSION, 128, activation=None)
    assert ranking.order == [1, 3, 0, 2]


def test_a_few_foreign_documents_leave_the_order_to_the_model() -> None:
    ranking = of_scripts(shared(0.9, 0.9), NOTHING, None, None)
    assert ranking.order == [3, 2, 1, 0]
    assert set(ranking.scored_by) == {"model"}
    assert (ranking.foreign, ranking.without_model) == (2, False)


@given(
    st.lists(st.none() | st.tuples(st.sampled_from([-90.0, -1.0, 0.0, 1.0, 60.0, 90.0]), st.sampled_from([0.0, 3.0])), max_size=30)
)
def test_order_against_a_plain_sort(features: list[tuple[float, float] | None]) -> None:
    worse = [-(2 * f[0] + 0.5 * f[1]) if f else np.inf for f in features]
    expected = sorted(range(len(features)), key=lambda number: (worse[number], number))
    ranking = run(features)
    assert ranking.order == expected
    in_order = ranking.scores[ranking.order]
    assert (np.diff(in_order) <= 0).all()


def test_candidate_keeps_blocks_best_first(pipeline: Pipeline) -> None:
    text = "Nothing to see. " * 30 + "The river flooded the bridge."
    document = pipeline.prepare_document(text)
    selection = pipeline.select(pipeline.prepare_query("river bridge"), document)
    kept = candidate(document, selection)
    assert kept.sequences == [selection.packed]
    assert kept.blocks[0] == Block(*kept.blocks[0])
    assert text[kept.blocks[0].start : kept.blocks[0].end].endswith("The river flooded the bridge.")
    assert len(kept.blocks) == len(selection.packed.taken)


def test_blocks_that_a_learned_selector_did_not_score_come_last_with_finite_scores(pipeline: Pipeline) -> None:
    document = pipeline.prepare_document("The river flooded the bridge. " * 40)
    sequence = Packed(np.arange(10, dtype=np.int32), 3, np.zeros(1, np.intp))
    scores = np.asarray([-np.inf, 2.5, -np.inf, -1.5])
    selection = Selection(
        [sequence], np.asarray([1, 3, 0, 2]), scores, np.zeros(5), single_reach(np.asarray([1, 3, 0, 2])), selection_tokens=20
    )
    kept = candidate(document, selection)
    assert [block.score for block in kept.blocks] == [2.5, -1.5, LOWEST, LOWEST]
    assert [block.start for block in kept.blocks] == document.starts[[1, 3, 0, 2]].tolist()
    assert scores.tolist() == [-np.inf, 2.5, -np.inf, -1.5]
    ranking = rank([kept], np.zeros(1, np.float32), FUSION, 128)
    assert ranking.n_tokens == 30


def test_a_block_that_was_scored_is_never_below_one_that_was_not() -> None:
    selection = Selection([], np.asarray([0, 1, 2]), np.asarray([3.0, -400.0, -np.inf]), np.zeros(5), single_reach(np.arange(3)))
    assert block_scores(selection).tolist() == [3.0, -400.0, -400.0]


def passages_of(blocks: list[Block]) -> Candidate:
    """A document each of whose blocks is a sequence."""
    return Candidate([PACKED] * len(blocks), np.zeros(5), blocks)


def test_passages_come_in_the_models_order_with_its_scores() -> None:
    """The selector liked the opening; the model liked the second block, and has not scored the other document."""
    opening, answer, end = Block(0, 5, 9.0), Block(5, 9, 1.0), Block(9, 12, 4.0)
    candidates = [passages_of([opening, end, answer]), passages_of([]), passages_of([end, opening])]
    logits = np.asarray([2.0, -np.inf, -np.inf], np.float32)
    passages = np.asarray([-1.0, 2.0, -1.0, -np.inf, -np.inf], np.float32)
    ranking = rank(candidates, logits, FUSION, 128, passages=passages)
    assert ranking.blocks == [[Block(5, 9, 2.0), Block(0, 5, -1.0), Block(9, 12, -1.0)], [], [end, opening]]
    assert rank(candidates, logits, FUSION, 128).blocks == [c.blocks for c in candidates]


def candidates_of(evidence: list[float | None]) -> list[Candidate]:
    """Documents given by their best block's score, None for one without a block."""
    return [Candidate([PACKED] if e is not None else [], np.asarray([e or 0.0, 0, 0, 0, 0]), []) for e in evidence]


@pytest.mark.parametrize("raw", [False, True])
def test_what_the_model_has_not_scored_comes_after_by_its_blocks_then_the_unread(raw: bool) -> None:
    candidates = [*candidates_of([1.0, 9.0, None, 2.0, 5.0]), UNREAD]
    logits = np.asarray([-3.0, -np.inf, -np.inf, 0.5, -np.inf, -np.inf], np.float32)
    ranking = rank(candidates, logits, FUSION, 128, activation=None if raw else Activation())
    assert ranking.order == [3, 0, 1, 4, 2, 5]
    assert ranking.scored_by == ["model", "selector", "order", "model", "selector", "order"]
    in_order = ranking.scores[ranking.order]
    assert (np.diff(in_order[:5]) < 0).all(), "clients that sort by the score get this order"
    assert in_order[4] == in_order[5] == (LOWEST if raw else 0.0)
    assert ranking.n_tokens == 20, "what was not scored was not fed"


@pytest.mark.parametrize(
    ("evidence", "order", "scores"),
    [
        ([1.0, None, 9.0], [2, 0, 1], [0.0067 / 3, 0, 2 * 0.0067 / 3]),
        ([1.0, 9.0, 1.0, 4.0], [1, 3, 0, 2], [2 * 0.0067 / 5, 4 * 0.0067 / 5, 2 * 0.0067 / 5, 3 * 0.0067 / 5]),  # equals stay equal
        ([None, None, None], [0, 1, 2], [0.0] * 3),
    ],
)
def test_without_the_model_the_blocks_decide(evidence: list[float | None], order: list[int], scores: list[float]) -> None:
    ranking = rank(candidates_of(evidence), np.full(len(evidence), -np.inf, np.float32), FUSION, 128)
    assert (ranking.order, ranking.n_tokens) == (order, 0)
    assert ranking.scores == pytest.approx(scores, abs=1e-5)


def test_what_the_model_has_not_scored_and_no_block_speaks_for_keeps_the_order_given() -> None:
    """Document 1 shares nothing with the query: only the model could have moved it before 0, which was not even read."""
    candidates = [UNREAD, *candidates_of([0.0, 2.0, 0.0, 9.0])]
    logits = np.asarray([-np.inf, -np.inf, -np.inf, 0.5, -np.inf], np.float32)
    ranking = rank(candidates, logits, FUSION, 128)
    assert ranking.order == [3, 4, 2, 0, 1]
    assert ranking.scored_by == ["order", "order", "selector", "model", "selector"]
    assert ranking.scores[[0, 1]].tolist() == [0.0, 0.0]


def test_preranking_is_the_fusions_where_it_weighs_blocks_else_the_best_block() -> None:
    given = [Candidate([], np.asarray([1.0, 5.0, 0.5, 0.0, 7.0]), []), UNREAD]
    assert prior_scores(given, Fusion(best_block=2, coverage=4)).tolist() == [4, 0]
    assert prior_scores(given, Fusion()).tolist() == [1, 0]


def test_scores_go_through_the_bundles_activation_and_order_the_same() -> None:
    candidates, logits = candidates_of([1.0, 2.0, 3.0, None]), np.asarray([2.0, -np.inf, -7.0, -np.inf], dtype=np.float32)
    usual = rank(candidates, logits, Fusion(), 128)
    identity, raw = (
        rank(candidates, logits, Fusion(), 128, activation=activation) for activation in (None, Activation(name="identity"))
    )
    assert identity.order == raw.order == usual.order == [0, 2, 1, 3]
    assert identity.scores.tolist() == raw.scores.tolist()
    assert identity.scores[[0, 2]].tolist() == [2.0, -7.0]
    assert (np.diff(identity.scores[identity.order]) < 0).all()
    scaled = rank(candidates, logits, Fusion(), 128, activation=Activation(scale=0.5))
    assert scaled.scores[0] == pytest.approx(0.7310586)
    assert scaled.scores[3] == 0.0


def test_the_first_stage_moves_what_the_model_has_scored_and_nothing_else() -> None:
    """For the model 2 is first, 0 and 3 share rank 2; the first stage has 3, 2, 0: 1 / 2 + 1, 1 / 3 + 1 / 2 and 1 + 1 / 2."""
    alone = run([(1.0, 0.0), None, (1.0, 2.0), (1.0, 0.0)])
    assert alone.order == [2, 0, 3, 1]
    ranking = with_first_stage(alone, FirstStage.read([1, 9, 2, 3], "mapfuse", 4), None)
    assert ranking.order == [2, 3, 0, 1], "what equals is in the model's order, and what has no text stays last"
    assert ranking.fused == pytest.approx({2: 1.5, 3: 1.5, 0: 0.833333})
    assert ranking.scores.tolist() == alone.scores.tolist(), "a relevance score is the model's"
    assert with_first_stage(alone, FirstStage.read([1, 9, 2, 3], None, 4), None) is alone


def test_if_the_model_scores_nothing_the_first_stage_is_not_fused() -> None:
    alone = of_scripts(*[NOTHING] * 4)
    ranking = with_first_stage(alone, FirstStage.read([1, 2, 3, 4], "linear", 4), None)
    assert (ranking.order, ranking.fused) == ([0, 1, 2, 3], {})


def pre_ranking(**rule: Any) -> PipelineConfig:
    """A pipeline that orders by the best block beforehand, and reads half of the documents."""
    rule = {"share": 0.5, "per_result": 1.0, "least": 1} | rule
    return PipelineConfig.model_validate({"fusion": FUSION.model_dump(), "pre_ranking": rule})


def test_documents_that_promise_too_little_are_ordered_by_it_below_all_that_the_model_reads() -> None:
    """Best blocks 2, 9, 0, 7, 1 and a document without a block: 9, 7 and 2 are read, and the model likes 2 best."""
    given = candidates_of([2.0, 9.0, 0.0, 7.0, 1.0, None])
    read = without_skipped(given, pre_ranking(), 2)
    assert [one.skipped for one in read] == [False, False, True, False, True, False]
    assert [len(one.sequences) for one in read] == [1, 1, 0, 1, 0, 0]
    ranking = rank(read, np.asarray([9, -5, -np.inf, -7, -np.inf, -np.inf], np.float32), FUSION, 128)
    assert ranking.order == [0, 1, 3, 4, 2, 5]
    assert ranking.scored_by == ["model", "model", "order", "model", "selector", "order"], "nothing speaks for document 2"
    assert (ranking.skipped, ranking.n_tokens) == (2, 30)
    assert (np.diff(ranking.scores[ranking.order]) <= 0).all()
    assert [one.has_blocks for one in read] == [True, True, True, True, True, False]


def test_a_learned_prior_knows_what_is_rare_in_the_request() -> None:
    """Of seven documents the first has the best block, and one alone has the second term: either prior score saves its own."""
    common, rare = np.asarray([[1.0], [0.0]], np.float32), np.asarray([[0.0], [1.0]], np.float32)
    terms = [Shared(counts, (counts > 0).sum(axis=1), 1) for counts in [common] * 3 + [rare] + [common] * 3]
    given = [one._replace(shared=of) for one, of in zip(candidates_of([9.0] + [5.0] * 6), terms, strict=True)]
    config = pre_ranking(share=0.1, prior={"rare_here": 1.0})
    assert [one.skipped for one in without_skipped(given, config, 1)] == [False] + [True] * 2 + [False] + [True] * 3
    assert prior_features(np.ones((2, 5)), [terms[0], None])[:, -1] == pytest.approx([np.log(2 / 1.5), 0.0])
    without = [one._replace(shared=None) for one in given]
    assert not any(one.skipped for one in without_skipped(without, config, 1)), "nothing tells them apart"


def test_where_time_is_short_the_best_by_each_prior_are_read_first() -> None:
    """Document 1 has the best block, then 2 and 0; 4 alone has the second term. In turns: 4 and 1, then 0 and 2, then 3."""
    common, rare = np.asarray([[1.0], [0.0]], np.float32), np.asarray([[0.0], [1.0]], np.float32)
    terms = [Shared(counts, (counts > 0).sum(axis=1), 1) for counts in [common] * 4 + [rare]]
    given = [one._replace(shared=of) for one, of in zip(candidates_of([5.0, 9.0, 7.0, 1.0, 1.0]), terms, strict=True)]
    learned = pre_ranking(prior={"rare_here": 1.0})
    assert first_to_read(given, learned) == [4, 1, 0, 2, 3]
    by_blocks = [1, 2, 0, 3, 4]
    assert first_to_read(given, pre_ranking()) == first_to_read(given, PipelineConfig(fusion=FUSION)) == by_blocks
    foreign = [one._replace(shared=of._replace(foreign=True)) for one, of in zip(given, terms, strict=True)]
    assert first_to_read(foreign, learned) == by_blocks, "of these the learned prior score says too little"
    assert first_to_read([UNREAD, given[1]], learned) == [1, 0]
    assert first_to_read([], learned) == []


def test_nothing_is_skipped_where_nothing_is_to_be() -> None:
    given = candidates_of([2.0, 9.0, 0.0, 7.0])
    assert without_skipped(given, PipelineConfig(), 2) == given, "no pre-ranking"
    assert without_skipped(given, pre_ranking(), None) == given, "each document is to be judged"
    assert without_skipped(given, pre_ranking(), 4) == given, "as many results as documents"
    assert without_skipped([], pre_ranking(), 2) == []
    there = shared(0.5, foreign=False)
    for unlearned in (shared(0.5, foreign=True), shared(0.5, foreign=False, unknown=True)):
        most, half = ([one._replace(shared=there if n < k else unlearned) for n, one in enumerate(given)] for k in (1, 2))
        assert not any(one.skipped for one in without_skipped(most, pre_ranking(), 2))
        assert [one.skipped for one in without_skipped(half, pre_ranking(), 2)] == [True, False, True, False]


def test_blocks_of_a_skipped_document_stay_as_the_selector_has_them() -> None:
    blocks = [Block(0, 5, 1.0), Block(9, 12, 0.5)]
    read = Candidate([PACKED, PACKED], np.asarray([9.0, 0, 0, 0, 0]), blocks)
    (first, second) = without_skipped([read, read._replace(evidence=np.zeros(5))], pre_ranking(), 1)
    ranking = rank([first, second], np.asarray([1, -np.inf], np.float32), FUSION, 128, passages=np.asarray([1, 2], np.float32))
    assert ranking.blocks == [[Block(9, 12, 2.0), Block(0, 5, 1.0)], blocks]
