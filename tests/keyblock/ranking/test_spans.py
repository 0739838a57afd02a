"""Spans: on cases whose right answer a person can see, and over any text."""

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.fusion import SpanScores
from keyblock.pipeline import Pipeline
from keyblock.ranking.answer import finished
from keyblock.ranking.order import Block, candidate, rank
from keyblock.ranking.pruning import GAP, Pruner
from keyblock.ranking.spans import Read as ReadDocument
from keyblock.ranking.spans import Span, block_worth, by_terms, marked_sentences, nearly_as_likely, scored_sentences, spans

TEXT = "The mill stood by the river. It ground corn for the town. In 1850 the river burst its banks! Nobody was hurt."
ANSWER = "In 1850 the river burst its banks!"


def read(pipeline: Pipeline, query: str, text: str, title: str = "", budget: int = 96) -> tuple[ReadDocument, Any]:
    prepared, document = pipeline.prepare_query(query), pipeline.prepare_document(text, title)
    one = candidate(document, pipeline.select(prepared, document, budget))
    places = np.asarray([block[:2] for block in one.blocks], np.int32).reshape(-1, 2)
    return ReadDocument(text, one.sequences, places, np.asarray(one.lengths, np.int32), one.title), one


def test_a_sentence_has_the_mean_mark_of_its_own_tokens(pipeline: Pipeline) -> None:
    """The tokens of the third sentence are marked 3, all others, the query's and the title's too, -2."""
    document, one = read(pipeline, "river banks", TEXT, "a mill")
    (packed,) = one.sequences
    words = [pipeline.tokenizer.backend.id_to_token(int(token)) for token in packed.ids]
    asked = pipeline.tokenizer.backend.encode(ANSWER, add_special_tokens=False).tokens
    first = next(i for i in range(len(words)) if words[i : i + len(asked)] == asked)
    marks = np.full(len(words), -2.0, np.float32)
    marks[first : first + len(asked)] = 3.0
    found = marked_sentences(pipeline, document, [marks])
    assert [TEXT[s.start : s.end] for s in found] == [s.strip() for s in TEXT.replace("! ", "!|").replace(". ", ".|").split("|")]
    assert [s.mark for s in found] == [-2.0, -2.0, 3.0, -2.0]
    assert found[2].tokens == len(asked)


def test_the_best_spans_are_runs_of_sentences_that_touch() -> None:
    text = "One. Two. Three. Four."
    scored = [Span(0, 4, 0.2), Span(5, 9, 0.9), Span(10, 16, 0.05), Span(17, 22, 0.4)]
    assert spans(text, scored) == [Span(5, 9, 0.9), Span(17, 22, 0.4), Span(0, 4, 0.2)]
    assert spans(text, scored, threshold=0.3) == [Span(5, 9, 0.9), Span(17, 22, 0.4)]
    assert spans(text, [Span(0, 4, 0.85), *scored[1:]]) == [Span(0, 9, 0.9), Span(17, 22, 0.4)]  # nearly as likely
    assert spans(text, scored, threshold=0.95) == []
    assert spans(text, [Span(0, 9, 0.3), Span(5, 16, 0.4)]) == [Span(0, 16, 0.4)]  # of blocks that overlap
    chinese = [Span(0, 7, 0.95), Span(7, 14, 0.12), Span(14, 19, 0.3)]
    assert spans("今天天气很好。我们去公园玩。他在家里。", chinese) == [chinese[0], chinese[2], chinese[1]]


@pytest.mark.parametrize(
    ("between", "one"), [(" ", True), ("\r\n\r\n", True), ("\n\u200b\n \ufeff\x00", True), (" x ", False), (" " * 999, False)]
)
def test_sentences_touch_where_nothing_that_is_seen_stands_between(between: str, one: bool) -> None:
    text = f"One.{between}Two."
    found = spans(text, [Span(0, 4, 0.65), Span(len(text) - 4, len(text), 0.7)])
    assert (found == [Span(0, len(text), 0.7)]) is one
    (context,) = finished(Pruner({0: text}, len).prune({0: found})).values()
    assert (GAP in context.text) is not one


def test_nearly_as_likely_is_a_matter_of_odds() -> None:
    """0.9 is nine to one; six tenths of that are 5.4 to one."""
    assert [nearly_as_likely(p) for p in (0.0, 0.9, 1.0)] == [0.0, pytest.approx(5.4 / 6.4), 1.0]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.floats(0, 1))
def test_every_sentence_that_reaches_the_threshold_is_in_one_span(probabilities: list[float], threshold: float) -> None:
    """Each span has the score of its best sentence, and none that is much less likely."""
    scored = [Span(2 * place, 2 * place + 1, score) for place, score in enumerate(probabilities)]
    found = spans("a " * len(scored), scored, threshold)
    inside = [[one for one in scored if span.start <= one.start < span.end] for span in found]
    assert sorted(one for of in inside for one in of) == [one for one in scored if one.score >= threshold]
    for span, of in zip(found, inside, strict=True):
        assert span.score == max(one.score for one in of)
        assert min(one.score for one in of) >= nearly_as_likely(span.score)


def test_of_a_model_without_marks_the_sentence_with_the_querys_words_is_the_span(pipeline: Pipeline) -> None:
    query = pipeline.prepare_query("when did the river burst its banks")
    found = by_terms(pipeline, query, TEXT, [Block(0, len(TEXT), 1.0)], [0.8])
    assert max(found, key=lambda span: span.score)[:2] == (TEXT.index(ANSWER), TEXT.index(ANSWER) + len(ANSWER))
    assert max(span.score for span in found) == 0.8
    nothing = by_terms(pipeline, pipeline.prepare_query("zebra"), TEXT, [Block(0, len(TEXT), 1.0)], [0.8])
    assert {span.score for span in nothing} == {0.8}


def test_the_best_block_has_the_documents_score_and_the_others_less() -> None:
    assert block_worth(np.asarray([4.0, 2.0, -1.0]), 0.6) == pytest.approx([0.6, 0.3, 0.0])
    assert block_worth(np.zeros(2), 0.6) == [0.6, 0.6]
    assert block_worth(np.zeros(0), 0.6) == []


def test_a_span_is_more_likely_in_a_document_that_answers(pipeline: Pipeline) -> None:
    """The same marks, once in a document with a high score, once in one with a low one."""
    _, one = read(pipeline, "river banks", TEXT)
    (packed,) = one.sequences
    marks = [np.zeros(len(packed.ids), np.float32)]
    config = pipeline.config.model_copy(update={"spans": SpanScores(bias=-1.0, mark=1.0, document=0.5)})
    with_spans: Any = SimpleNamespace(config=config, reader=pipeline.reader, tokenizer=pipeline.tokenizer)
    query = pipeline.prepare_query("river banks")
    best = []
    for logit in (4.0, -4.0):
        ranking = rank([one], np.asarray([logit], np.float32), pipeline.config.fusion, 96)
        found = scored_sentences(with_spans, query, one, ranking, 0, TEXT, marks)
        expected = 1 / (1 + np.exp(1 - 0.5 * ranking.logits[0]))
        assert [span.score for span in found] == pytest.approx([expected] * 4)
        best.append(found[0].score)
    assert best[0] > best[1]


def test_a_question_or_a_heading_is_no_span_however_well_it_is_marked(pipeline: Pipeline) -> None:
    text = "## The river banks\n\nWhen did the river burst its banks? In the spring of 1953. (Did the dam hold?)"
    _, one = read(pipeline, "river banks", text)
    marks = [np.full(len(packed.ids), 9, np.float32) for packed in one.sequences]
    ranking = rank([one], np.asarray([4.0], np.float32), pipeline.config.fusion, 96)
    query = pipeline.prepare_query("When did the river burst its banks?")
    for config in (pipeline.config, pipeline.config.model_copy(update={"spans": SpanScores()})):
        either: Any = SimpleNamespace(
            config=config, reader=pipeline.reader, tokenizer=pipeline.tokenizer, aggregator=pipeline.aggregator,
            analyzer=pipeline.analyzer,
        )  # fmt: skip
        found = scored_sentences(either, query, one, ranking, 0, text, marks)
        assert [text[span.start : span.end].strip() for span in found] == ["In the spring of 1953."]


def test_a_document_that_the_model_has_not_scored_has_no_spans(pipeline: Pipeline) -> None:
    _, one = read(pipeline, "river banks", TEXT)
    ranking = rank([one], np.asarray([-np.inf], np.float32), pipeline.config.fusion, 96)
    assert scored_sentences(pipeline, pipeline.prepare_query("river banks"), one, ranking, 0, TEXT) == []


@given(st.text(max_size=400), st.text(max_size=40), st.integers(60, 96), st.data())
def test_sentences_of_any_text_lie_in_the_blocks_and_in_order(
    pipeline: Pipeline, text: str, title: str, budget: int, data: st.DataObject
) -> None:
    text = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    document, one = read(pipeline, "river banks", text, title, budget)
    if not one.sequences:
        return
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    marks = [rng.uniform(-9, 9, len(packed.ids)).astype(np.float32) for packed in one.sequences]
    found = marked_sentences(pipeline, document, marks)
    inside = sorted(block[:2] for block in one.blocks)
    for sentence in found:
        assert 0 <= sentence.start < sentence.end <= len(text)
        assert any(start <= sentence.start and sentence.end <= end for start, end in inside)
        assert text[sentence.start : sentence.end].strip() == text[sentence.start : sentence.end]
        assert -9 <= sentence.mark <= 9
    given_spans = [Span(s.start, s.end, (s.mark + 9) / 18) for s in found]
    runs = sorted(spans(text, given_spans, 0.5))
    assert all(before.end <= after.start for before, after in itertools.pairwise(runs))
    assert {i for span in runs for i in range(span.start, span.end) if not text[i].isspace()} == {
        i for span in given_spans if span.score >= 0.5 for i in range(span.start, span.end) if not text[i].isspace()
    }


def test_a_sentence_that_is_marked_more_answers_more_likely_and_so_does_one_of_a_better_document() -> None:
    how = SpanScores(bias=-1.0, mark=2.0, document=0.5)
    # by hand: -1 + 2 * 0.5 + 0.5 * 0 = 0; -1 + 2 * 0.5 + 0.5 * 4 = 2; -1 + 2 * 1.5 + 0.5 * 0 = 2
    found = how.probabilities(np.asarray([0.5, 0.5, 1.5]), np.asarray([0.0, 4.0, 0.0]))
    assert found == pytest.approx([0.5, 1 / (1 + np.exp(-2)), 1 / (1 + np.exp(-2))])
