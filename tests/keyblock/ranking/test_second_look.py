"""The second look: what it reads, how scores, blocks and spans change by it, and what is lost where time is up."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from keyblock.bundle import Bundle, load_bundle
from keyblock.description import PipelineConfig
from keyblock.fusion import Fusion, SecondLook
from keyblock.pipeline import Pipeline
from keyblock.ranker import Ranker
from keyblock.ranking.answer import Answered, Outcome, Scores, finished
from keyblock.ranking.flow import Answer, Prepare, Read, Score, ranking
from keyblock.ranking.order import Looked
from keyblock.ranking.pruning import never
from keyblock.ranking.request import RankRequest, Texts
from keyblock.text.analyzer import DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer
from tests.conftest import ROOT
from tests.keyblock.ranking.test_flow import Model

QUERY = "river flood"
RIVERS = [
    " ".join(f"The river {verb} the city in the year {year}. " * 5 for year in range(n))
    for n, verb in ((9, "flooded"), (7, "left"))
]
SHORT = "A river of stone."
LOOK = SecondLook(documents=3, blocks=2, margin=100.0, bias=-1.0, first=0.5, further=2.0)


@pytest.fixture(scope="module")
def looking(tokenizer: Tokenizer, frequencies: DocumentFrequencies) -> Pipeline:
    config = PipelineConfig(fusion=Fusion(best_block=0.1), second_look=LOOK, packing={"budget": 96, "title_tokens": 8})
    return Pipeline(config, tokenizer, frequencies)


@pytest.fixture(scope="module")
def plain(looking: Pipeline) -> Pipeline:
    return Pipeline(looking.config.model_copy(update={"second_look": None}), looking.tokenizer, looking.frequencies)


def driven(
    pipeline: Pipeline, texts: list[str], titles: list[str] | None = None, in_time: int = 99, **asked: Any
) -> tuple[Answered, list[Score]]:
    """The answer, and the steps that scored; of the second, only so many sequences in time."""
    flow, outcome, scoring = ranking(RankRequest(QUERY, Texts(texts), **asked), pipeline), None, list[Score]()
    while not isinstance(step := flow.send(outcome), Answer):
        match step:
            case Prepare():
                outcome = step.do()
            case Read():
                outcome = step.choose(pipeline.prepare_documents(texts, titles))
            case Score():
                logits = np.full(len(step.candidates), -np.inf, np.float32)
                for number in step.order()[: in_time if scoring else None]:
                    if step.candidates[number].sequences:
                        logits[number] = Model().outputs(step.candidates[number].sequences)[0]
                scoring.append(step)
                outcome = Scores(logits)
    return finished(step.steps(never)), scoring


def test_the_next_best_blocks_of_the_best_documents_are_read_each_alone(looking: Pipeline, plain: Pipeline) -> None:
    """Against the pipeline's own way to pack a block alone."""
    texts = [*RIVERS, SHORT, "Nothing of it."]
    answered, (_, second) = driven(looking, texts, ["Floods", "", "", ""])
    before, _ = driven(plain, texts, ["Floods", "", "", ""])
    query = looking.prepare_query(QUERY)
    due = []
    for number in before.ranking.order[:3]:
        document = looking.prepare_document(texts[number], "Floods" if number == 0 else "")
        selection = looking.select(query, document)
        rest = [block for block in np.argsort(-selection.scores, kind="stable") if block not in selection.taken][:2]
        due += looking.block_sequences(query, document, np.sort(np.asarray(rest, np.intp)))
    read = [one.sequences[0] for one in second.candidates]
    assert [one.ids.tolist() for one in read] == [one.ids.tolist() for one in due]
    assert [one.split for one in read] == [one.split for one in due]
    assert (answered.ranking.looked, answered.ranking.looked_tokens) == (2, sum(len(one.ids) for one in due))
    assert answered.ranking.n_tokens == before.ranking.n_tokens + answered.ranking.looked_tokens


def test_the_score_is_the_weighted_sum_by_hand(looking: Pipeline, plain: Pipeline) -> None:
    """-1 + .5 of the fused logit before + 2 of the best further block's; of a text of one block, of the first look's logit."""
    texts = [RIVERS[0], SHORT]
    answered, (first, second) = driven(looking, texts, raw_scores=True)
    before, _ = driven(plain, texts, raw_scores=True)
    further = max(Model().outputs([one.sequences[0]])[0] for one in second.candidates)
    short = Model().outputs(first.candidates[1].sequences)[0]
    assert answered.ranking.scores[0] == pytest.approx(-1 + 0.5 * before.ranking.scores[0] + 2 * further)
    assert answered.ranking.scores[1] == pytest.approx(-1 + 0.5 * before.ranking.scores[1] + 2 * short)


def test_further_blocks_stand_behind_the_first_with_their_logits(looking: Pipeline) -> None:
    answered, (first, second) = driven(looking, [RIVERS[0]])
    blocks = answered.ranking.blocks[0]
    own = len(first.candidates[0].blocks)
    assert blocks[:own] == first.candidates[0].blocks
    logits = sorted((float(Model().outputs(one.sequences)[0]) for one in second.candidates), reverse=True)
    assert [block.score for block in blocks[own:]] == pytest.approx(logits)
    assert len({block[:2] for block in blocks}) == own + 2


@given(in_time=st.integers(0, 5))
def test_what_was_not_read_in_time_changes_nothing(looking: Pipeline, plain: Pipeline, in_time: int) -> None:
    answered, (_, second) = driven(looking, RIVERS, in_time=in_time, raw_scores=True)
    before, _ = driven(plain, RIVERS, raw_scores=True)
    looked = [number for place, number in enumerate(before.ranking.order) if 2 * place < in_time]  # two blocks of each
    assert answered.ranking.looked == len(looked)
    least = min((answered.ranking.scores[number] for number in looked), default=math.inf)  # who was behind stays behind
    for number in range(2):
        first = before.ranking.scores[number]
        if number in looked:
            assert answered.ranking.scores[number] != first
        else:
            assert answered.ranking.scores[number] == pytest.approx(min(first, least))
    assert answered.ranking.looked_tokens == sum(len(one.sequences[0].ids) for one in second.candidates[:in_time])
    assert not answered.ranking.degraded


def test_a_request_may_do_without_it(looking: Pipeline, plain: Pipeline) -> None:
    answered, scoring = driven(looking, RIVERS, second_look=False)
    before, _ = driven(plain, RIVERS)
    assert len(scoring) == 1
    assert answered.ranking.scores.tolist() == before.ranking.scores.tolist()
    assert answered.ranking.blocks == before.ranking.blocks
    answered, scoring = driven(looking, ["", ""])
    assert (len(scoring), answered.ranking.looked) == (1, 0), "nor does it read on in documents without text"


@pytest.mark.parametrize(("fused", "read"), [([3.0, 1.0, 0.9, -5.0], [0, 1]), ([0.0, 0.0, -2.0, -1.0], [0, 1, 3, 2]), ([], [])])
def test_the_margin_counts_from_the_best(fused: list[float], read: list[int]) -> None:
    values = np.asarray(fused)
    assert SecondLook(documents=4, margin=2.0).chosen(np.argsort(-values, kind="stable"), values).tolist() == read


def test_separate_passages_are_read_on_already() -> None:
    with pytest.raises(ValidationError, match="aggregator must be joint"):
        PipelineConfig(aggregator={"name": "max"}, second_look=SecondLook())


ANSWER = "Tenants who wish to go give three months of notice."
TALK = (
    "The notice board in the hall lists the tenants of each flat. "
    "A notice for tenants hangs there, too, about the flat on the left. "
)
OTHER = "The caretaker sweeps the stairs on Mondays and collects the parcels on Fridays in the afternoon. "
TENANCY = TALK * 6 + OTHER * 12 + ANSWER + " " + OTHER * 12


@pytest.fixture(scope="module")
def rankers() -> Iterator[tuple[Ranker, Ranker]]:
    """The default bundle without a second look, and with one of six blocks."""
    bundle = load_bundle(ROOT / "models" / "default")
    without, with_look = (
        Ranker.open(_with(bundle, look), provider="cpu", precision="fp32", threads=1) for look in (None, SecondLook(blocks=6))
    )
    with without, with_look:
        yield without, with_look


def _with(bundle: Bundle, look: SecondLook | None) -> Bundle:
    own = bundle.pipeline
    config = own.config.model_copy(update={"second_look": look})
    return replace(bundle, pipeline=Pipeline(config, own.tokenizer, own.frequencies, own.encoder))


def test_the_answer_in_a_further_block_is_found_and_marked(rankers: tuple[Ranker, Ranker]) -> None:
    """Its words are rarer in the query than those of the talk about notices, so that the first look does not read it."""
    found = [ranker.rank("tenants notice flat", [TENANCY], relevant_spans=True, span_threshold=0.0)[0] for ranker in rankers]
    read = [any(ANSWER in (block.text or "") for block in one.blocks) for one in found]
    assert read == [False, True]
    marked = [any(ANSWER in (span.text or "") for span in one.relevant_spans) for one in found]
    assert marked == [False, True]


def test_a_block_that_scores_less_alone_marks_less(looking: Pipeline) -> None:
    """The model marks all tokens alike and gives a logit below that of the first look to one block, a higher one to the other."""
    _, (first, second) = driven(looking, RIVERS[:1])
    scores = Scores(np.asarray([1.5], np.float32))
    sequences = [packed for one in second.candidates for packed in one.sequences]
    marks = [np.full(len(packed.ids), 2.0, np.float32) for packed in sequences]
    looked = Looked([0], [1.0], [np.asarray([0.5, 3.0], np.float32)], [sequences], [marks])
    outcome = Outcome(looking.prepare_query(QUERY), first.candidates, scores, 96, looked=looked)
    assert [set(one.tolist()) for one in outcome.further[0].marks] == [{1.0}, {2.0}]


def test_documents_that_are_not_read_on_stay_behind_those_that_are() -> None:
    """.5 of 3 is below 2, so all others are 1 lower; where nothing is overtaken, nothing moves."""
    fused = np.asarray([3.0, 2.5, 2.0, -4.0])
    behind = SecondLook.joined(fused, [0], [1.5])
    assert behind == pytest.approx(np.asarray([1.5, 1.5, 1.0, -5.0]))
    assert behind[1] < behind[0]  # no tie, which the order given would decide
    assert SecondLook.joined(fused, [1, 0], [3.5, 4.0]).tolist() == [4.0, 3.5, 2.0, -4.0]
    assert SecondLook.joined(fused, [], []).tolist() == fused.tolist()
    assert SecondLook.joined(fused, [0, 1, 2, 3], [1.0, 2.0, 3.0, 4.0]).tolist() == [1.0, 2.0, 3.0, 4.0]


def test_a_document_of_one_block_does_not_overtake_what_was_not_read_in_time(looking: Pipeline) -> None:
    """Its logit is known without a second look, which the better documents did not get: the first order stands."""
    texts = [*RIVERS, SHORT]
    late, (_, second) = driven(looking, texts, in_time=0, raw_scores=True)
    before, _ = driven(looking, texts, second_look=False, raw_scores=True)
    assert before.ranking.order[-1] == 2
    assert len(second.candidates) == 4
    assert late.ranking.order == before.ranking.order
    assert late.ranking.scores.tolist() == before.ranking.scores.tolist()


def test_documents_far_below_the_best_are_not_read_on(looking: Pipeline) -> None:
    """The logits of the first look are between 0 and 1, and lexical evidence counts: the documents are further apart than .1."""
    near = Pipeline(
        looking.config.model_copy(update={"second_look": LOOK.model_copy(update={"margin": 0.1})}),
        looking.tokenizer,
        looking.frequencies,
    )
    assert (driven(looking, RIVERS)[0].ranking.looked, driven(near, RIVERS)[0].ranking.looked) == (2, 1)
