"""What is asked of a running service, and what becomes of each document; the frameworks themselves are tests/clients' matter."""

import copy
import json
import logging
import pickle
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from pydantic import ValidationError

from keyblock.client import UnreachableError
from keyblock.integrations.asking import Asking, Found
from tests.clients.asked import ANSWER, HANDBOOK, NEWSLETTER, QUESTION, RECIPE, RIGHT, TEXTS, check_pruned, check_span
from tests.keyblock.client.proxy import Proxy
from tests.support.serving import Service

NOWHERE = "http://127.0.0.1:9"
Ask = Callable[..., list[Found]]


@pytest.fixture
def ask(running: Service) -> Ask:
    """Asks about TEXTS, or others, with these settings."""
    return lambda texts=TEXTS, **settings: Asking(**{"url": running.url, **settings}).ask(QUESTION, texts)


def numbers(found: list[Found]) -> list[int]:
    return [one.number for one in found]


def test_documents_in_their_new_order_as_they_are(ask: Ask) -> None:
    found = ask()
    assert found[0].number == RIGHT
    assert sorted(numbers(found)) == [0, 1, 2]
    assert [(one.text, one.metadata) for one in found] == [(None, {"relevance_score": one.score}) for one in found]
    assert ask(top_n=1) == found[:1]


@pytest.mark.parametrize("texts", [TEXTS, [NEWSLETTER, RECIPE], ["", HANDBOOK], []])
def test_both_ways_of_waiting_give_the_same(running: Service, texts: list[str]) -> None:
    asking = Asking(url=running.url, prune=True, min_score=0.1)
    assert anyio.run(asking.ask_async, QUESTION, texts) == asking.ask(QUESTION, texts)


def test_the_sentence_that_answers(ask: Ask) -> None:
    best, *others = ask(relevant_spans=True)
    span = best.metadata["relevant_spans"][0]
    check_span(span["start"], span["end"])
    assert HANDBOOK[span["start"] : span["end"]] == span["text"]
    assert [other.metadata["relevant_spans"] for other in others] == [[], []]


def test_a_mapping_is_sent_as_it_is(ask: Ask) -> None:
    (found,) = ask([f"{HANDBOOK} {HANDBOOK}"], relevant_spans={"mode": "enabled", "max_spans": 1})
    assert len(found.metadata["relevant_spans"]) == 1
    assert "relevant_spans" not in ask(relevant_spans={"mode": "disabled"})[0].metadata


def test_pruned_documents_of_which_nothing_answers_are_left_out(ask: Ask) -> None:
    (found,), (kept,) = ask(prune=True), ask(prune=True, keep_original=True)
    assert found.number == RIGHT
    assert kept.metadata["original_text"] == HANDBOOK
    check_pruned(found.text)
    parts = found.metadata["context_parts"]
    assert any(ANSWER in HANDBOOK[start:end] for start, end in parts)
    assert ask(prune=True, relevant_spans={"mode": "disabled"}, keep_at_least=0) == [found]
    assert found.metadata.keys() == {"relevance_score", "context_tokens", "context_parts"}


def test_the_best_documents_stay_even_if_nothing_in_them_answers(ask: Ask, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "keyblock")
    (best,) = ask([NEWSLETTER, RECIPE], prune=True)
    assert best.text
    assert "prune: 1 of 2 documents are left out" in caplog.text
    assert len(ask([NEWSLETTER, RECIPE], prune=True, keep_at_least=2)) == 2
    assert ask([NEWSLETTER, RECIPE], prune=True, keep_at_least=0) == []


def test_a_bound_holds_for_all_together(ask: Ask) -> None:
    found = ask([HANDBOOK] * 5, prune=True, max_context_tokens=40)
    assert 0 < sum(one.metadata["context_tokens"] for one in found) <= 40
    assert 0 < len(found) < 5
    assert ask(prune=True, max_context_tokens=1) == []


def test_documents_below_the_threshold_are_left_out(ask: Ask) -> None:
    assert numbers(ask(min_score=0.1)) == [RIGHT]
    assert ask([NEWSLETTER, RECIPE], min_score=0.1) == []


def test_documents_that_are_not_scored_stay_whole(ask: Ask) -> None:
    """Nothing is known of them: one without text, and all where nobody answers."""
    assert [(one.number, one.text) for one in ask(["", HANDBOOK], prune=True)][1:] == [(0, None)]
    found = ask(url=NOWHERE, client={"retries": 0}, options={"fallback": True}, prune=True, max_context_tokens=40)
    assert found == [Found(n, 0.0, None, {"relevance_score": 0.0, "scored_by": "order"}) for n in range(3)]


def test_without_texts_no_request_is_sent(ask: Ask) -> None:
    assert ask([], url=NOWHERE) == []
    with pytest.raises(UnreachableError):
        ask(url=NOWHERE, client={"retries": 0})


def test_only_what_was_set_is_sent(running: Service) -> None:
    with Proxy(running.port) as proxy:
        Asking(url=proxy.url, api_key="kb_any", client={"headers": {"x-own": "1"}}).ask(QUESTION, TEXTS)
        Asking(url=proxy.url, min_score=0.1, prune=True, options={"raw_scores": True}, top_n=3).ask(QUESTION, TEXTS, top_n=2)
    plain, full = ({**json.loads(one.body), "documents": 0, "query": 0} for one in proxy.seen)
    assert plain == {"query": 0, "documents": 0, "return_blocks": False}
    assert full == {**plain, "raw_scores": True, "top_n": 2, "min_score": 0.1, "prune": True, "relevant_spans": {"mode": "enabled"}}
    assert (proxy.seen[0].headers["authorization"], proxy.seen[0].headers["x-own"]) == ("Bearer kb_any", "1")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"top_m": 3}, "top_m"),
        ({"top_n": 0}, "top_n"),
        ({"url": "localhost"}, "url must be like"),
        ({"client": {"tries": 3}}, "tries"),
        ({"client": {"timeout": -1}}, "timeout must be at least 0"),
        ({"options": {"deadline": 3}}, "'deadline' is no option"),
        ({"options": {"prune": True}}, "'prune' is no option of a ranking, or has a field of its own"),
        ({"max_context_tokens": 100}, "say prune=True"),
        ({"api_key": "kb_secret\n"}, "api_key has a character"),
    ],
)
def test_a_wrong_setting_is_refused_at_once(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why) as caught:
        Asking(**settings)
    assert "kb_secret" not in str(caught.value)
    asking = Asking(api_key="kb_secret")
    assert not any("kb_secret" in shown for shown in (repr(asking), str(asking.model_dump()), asking.model_dump_json()))


def test_copies_of_a_used_object_work_too(running: Service) -> None:
    asking = Asking(url=running.url, min_score=0.1)
    found = asking.ask(QUESTION, TEXTS)
    assert asking._connection.client is asking._connection.client, "the connection is kept"
    for one in (copy.copy(asking), copy.deepcopy(asking), pickle.loads(pickle.dumps(asking))):
        assert one.ask(QUESTION, TEXTS) == found


def test_each_kind_of_warning_is_given_once(running: Service, caplog: pytest.LogCaptureFixture) -> None:
    asking = Asking(url=running.url)
    for texts in (["", HANDBOOK], ["", HANDBOOK], [HANDBOOK, "", ""]):
        asking.ask(QUESTION, texts)
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        "documents without text to score, ranked last: 0"
    ]
