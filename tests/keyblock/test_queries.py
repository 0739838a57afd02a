"""Long queries: which sentences the model reads, against a slow choice; and an e-mail whose question stands in the middle."""

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.bundle import Bundle
from keyblock.description import PipelineConfig
from keyblock.pipeline import Pipeline
from keyblock.queries import CLAUSE, QUERY_TERMS, LongQuery, Sentence, key_sentences, query_sentences
from keyblock.text.analyzer import DocumentFrequencies, term_key
from keyblock.text.tokenizer import Tokenizer

EMAIL = Path(__file__).with_name("email.txt").read_text(encoding="utf-8")
QUESTION = "Which form do I have to hand in so that my travel to the conference in Lisbon is paid back?"
SENTENCES = st.lists(st.tuples(st.integers(1, 12), st.lists(st.integers(1, 9), max_size=6), st.booleans()), min_size=1, max_size=12)
WORDS = st.sampled_from(["river", "floods.", "Why?", "the\n", "bridge", ",", "year"])


def laid_out(drawn: list[tuple[int, list[int], bool]]) -> list[Sentence]:
    bounds = np.cumsum([0, *(length for length, _, _ in drawn)]).tolist()
    return [Sentence(start, end, terms, asks) for (start, end), (_, terms, asks) in zip(pairwise(bounds), drawn, strict=True)]


def slow_choice(sentences: list[Sentence], weights: dict[int, float], config: LongQuery) -> list[tuple[int, int]]:
    """Reckon every gain anew each time, and take the greatest; the earlier one on a tie."""
    taken, found, room = set[int](), list[tuple[int, int]](), config.tokens
    left = [i for i, one in enumerate(sentences) if config.questions and one.asks and one.terms]
    if config.questions and not left:
        telling = [i for i, one in enumerate(sentences) if one.end - one.start >= CLAUSE and one.terms]
        for last in telling[-1:]:
            found, taken = [(last, min(sentences[last].end - sentences[last].start, room))], set(sentences[last].terms)
            room -= found[0][1]
    left = left or [i for i in range(len(sentences)) if i not in dict(found)]
    while left and room:
        gains = []
        for number in left:
            start, end, terms, _ = sentences[number]
            factor = config.first if number == 0 else 1.0
            gains.append(factor * sum(weights[term] for term in set(terms) - taken) / (end - start))
        best = left.pop(int(np.argmax(gains)))
        length = sentences[best].end - sentences[best].start
        if found and (length > room or max(gains) == 0):
            continue
        found.append((best, min(length, room)))
        room -= min(length, room)
        taken |= set(sentences[best].terms)
    return found


@given(SENTENCES, st.integers(1, 40), st.booleans(), st.sampled_from([1.0, 3.0]))
def test_the_choice_equals_the_slow_one(
    drawn: list[tuple[int, list[int], bool]], tokens: int, questions: bool, first: float
) -> None:
    weights = {term: float(term) for term in range(1, 10)}
    config = LongQuery(tokens=tokens, questions=questions, first=first)
    assert key_sentences(laid_out(drawn), weights, config) == slow_choice(laid_out(drawn), weights, config)


def with_long_query(of: Pipeline, **parameters: float) -> Pipeline:
    packing = of.config.packing.model_dump() | {"long_query": parameters, "budget_range": (96, 256)}
    config = PipelineConfig.model_validate(of.config.model_dump() | {"packing": packing})
    return Pipeline(config, of.tokenizer, of.frequencies, of.encoder)


@pytest.fixture(scope="module")
def reading(pipeline: Pipeline) -> Pipeline:
    return with_long_query(pipeline, tokens=20)


@given(st.text(max_size=300) | st.lists(WORDS, max_size=120).map(" ".join))
def test_any_query_is_read_in_part_and_in_order(reading: Pipeline, pipeline: Pipeline, text: str) -> None:
    whole, query = pipeline.tokenizer.ids(text), reading.prepare_query(text)
    if len(whole) <= 48:
        assert query.token_ids.tolist() == whole.tolist()
        assert not query.truncated
        assert not query.reads
        return
    assert query.truncated
    assert 1 <= len(query.token_ids) <= 20
    left = iter(whole.tolist())
    assert all(token in left for token in query.token_ids.tolist()), "what is read is in the query, in its order"
    assert set(query.terms.tolist()) == set(pipeline.prepare_query(text).terms.tolist())


def test_sentences_hold_all_tokens(pipeline: Pipeline) -> None:
    text = "Is it so? River " + "river " * 79 + "floods. Yes."
    found = query_sentences(pipeline.reader.read([text])[0], pipeline.analyzer)
    assert [(one.start, one.end) for one in found] == [(0, 4), (4, 36), (36, 68), (68, 86), (86, 88)]
    assert [one.asks for one in found] == [True, False, False, False, False]
    assert set(found[1].terms) == {term_key("river")}


def test_the_question_of_an_email_is_read(pipeline: Pipeline) -> None:
    assert 290 <= len(EMAIL.split()) <= 330
    assert QUESTION in EMAIL
    asked = pipeline.tokenizer.ids(QUESTION).tolist()
    plain, chosen = pipeline.prepare_query(EMAIL), with_long_query(pipeline).prepare_query(EMAIL)
    assert not set(pipeline.tokenizer.ids("Lisbon").tolist()) & set(plain.token_ids.tolist())
    assert plain.reads == "its first 48 tokens"
    assert chosen.token_ids.tolist() == asked
    assert re.fullmatch(r"21 of its 3\d\d tokens \(of its \d\d sentences these: \d\d\)", chosen.reads)


REQUESTS = {
    "story, then a clause": "We fly to the yearly fair every spring and the flight takes eleven hours, my knees hurt since "
    "the operation that I had in autumn, the doctor wrote a letter about it, and so I would like to know whether the company would "
    "pay a better seat.",
    "rhetorical question": "Who does not know that feeling on a cold morning? The heating went off again last night, the "
    "neighbours froze, the landlord was away and did not pick up the phone, "
    "and the caretaker only shrugged. Please tell me who has to pay for a better seat.",
    "no words that ask": "My knees hurt since the operation that I had in autumn and the doctor wrote a letter about it. The "
    "flight to the fair takes eleven hours, and last year, when I had to sit in the last row, I could hardly walk. The "
    "company pays for a better seat. Thank you!",
}


@pytest.mark.parametrize("text", REQUESTS.values(), ids=REQUESTS)
def test_a_request_without_a_question_mark_is_read(pipeline: Pipeline, text: str) -> None:
    read = with_long_query(pipeline).prepare_query(text).token_ids.tolist()
    asked = pipeline.tokenizer.ids("a better seat.").tolist()
    assert len(pipeline.tokenizer.ids(text)) > 48
    assert any(read[place : place + len(asked)] == asked for place in range(len(read)))


def test_all_terms_of_a_page_select_and_of_a_book_the_weightiest(tokenizer: Tokenizer) -> None:
    common = {f"common{i}": 900 for i in range(400)}
    pipeline = with_long_query(Pipeline(PipelineConfig(), tokenizer, DocumentFrequencies(1000, common)))
    text = " ".join([*common, *(f"rare{i}" for i in range(QUERY_TERMS))])
    assert pipeline.prepare_query(text).terms.tolist() == [term_key(f"rare{i}") for i in range(QUERY_TERMS)]


def test_the_words_of_the_question_select_in_spite_of_a_long_log(tokenizer: Tokenizer) -> None:
    """Each of the log's ids is rarer than the words of the question that is asked of it."""
    table = DocumentFrequencies(1000, {"river": 300, "bridg": 300})
    pipeline = with_long_query(Pipeline(PipelineConfig(), tokenizer, table))
    query = pipeline.prepare_query("Which river has a bridge?\n" + " ".join(f"ID{i}" for i in range(2 * QUERY_TERMS)))
    assert len(query.terms) == QUERY_TERMS
    assert {term_key("river"), term_key("bridg")} <= set(query.terms.tolist())


def test_a_pasted_book_is_read_in_a_moment(reading: Pipeline) -> None:
    query = reading.prepare_query("Why does the river flood? " * 5000)
    assert query.reads == "6 of its 30000 tokens (of its 5000 sentences these: 1)"


def test_more_tokens_than_the_least_budget_has_room_for_are_refused() -> None:
    with pytest.raises(ValueError, match="budget_range starts at 96: no room for a block beside 100 query tokens"):
        PipelineConfig.model_validate({"packing": {"long_query": {"tokens": 100}, "budget_range": [96, 256]}})


@pytest.fixture(scope="module")
def default(embedded: Bundle) -> Pipeline:
    return embedded.pipeline


DESCALING = "Descaling takes a minute: fill the machine with vinegar and water and let it run twice."


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("how do i clean the machien with vinagar", {"machien": "machine", "vinagar": "vinegar"}),  # exchanged; wrong
        ("the machne and the vineggar", {"machne": "machine", "vineggar": "vinegar"}),  # missing; too many
        ("the lachine of the house", {}),  # another first letter
        ("how does lucene score documents in grafana on kubernetes", {}),  # names
        ("comment préparer la maison de vacances", {}),  # another language
        ("Why did the Queen accuse the Hatter of murder?", {}),  # a name: it has a capital
        ("How Do I Clean the Machien", {}),
        ("HOW DO I CLEAN THE MACHIEN", {"machien": "machine"}),
        ("machien", {}),  # nothing tells that it is English
        ("What does E04 mean on MX-1200?", {}),
    ],
)
def test_typing_errors_are_mended(default: Pipeline, text: str, meant: dict[str, str]) -> None:
    mended = default.prepare_query(text).mended
    assert ({} if mended is None else mended.words) == meant


def test_blocks_are_selected_and_read_by_what_was_meant(default: Pipeline) -> None:
    """A document that has the word as it was typed is read with the query as it was typed: the word is a name there."""
    typed, right = default.prepare_query("clean the machien with vinegar"), default.prepare_query("clean the machine with vinegar")
    described = default.prepare_document("The weather is fine. " * 40 + DESCALING + " Nothing else matters here." * 40)
    named = default.prepare_document("Mr Machien of Vienna keeps a shop.")
    (by_typed, of_named), (by_right,) = default.select_each(typed, [described, named]), default.select_each(right, [described])
    assert by_typed.packed.ids.tolist() == by_right.packed.ids.tolist()
    assert of_named.packed.ids[: of_named.packed.split].tolist() == [101, *typed.token_ids.tolist(), 102]


@given(
    st.lists(st.sampled_from(["machien", "vinagar", "Mabry", "with", "the", "water", "boils"]), min_size=1, max_size=9), st.data()
)
def test_many_documents_at_once_are_selected_as_each_alone(default: Pipeline, words: list[str], data: st.DataObject) -> None:
    query = default.prepare_query(" ".join(words))
    texts = data.draw(st.lists(st.sampled_from([DESCALING, "Machien and Vinagar Ltd.", "Mabry syndrome", ""]), max_size=5))
    documents = default.prepare_documents(texts)
    for document, found in zip(documents, default.select_each(query, documents), strict=True):
        alone = default.select(query, document)
        assert [one.ids.tolist() for one in found.sequences] == [one.ids.tolist() for one in alone.sequences]
        assert found.evidence == pytest.approx(alone.evidence)
