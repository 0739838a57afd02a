"""cohere 7: relevant_spans of its own clients."""

import asyncio
from typing import Any

import cohere
import pytest
from asked import HANDBOOK, QUESTION, RIGHT, TEXTS, check_span
from cohere.errors import UnprocessableEntityError
from page import run
from question import EXAMPLE, ORDER
from running import Service


def rerank(url: str, documents: list[str] = TEXTS, **more: Any) -> list[Any]:
    client = cohere.ClientV2(api_key="any", base_url=url)
    return list(client.rerank(model="any", query=QUESTION, documents=documents, **more).results)


def test_the_snippet(service: Service) -> None:
    ((start, end),) = run("cohere, with the spans", service.url)
    assert "two months' notice is enough" in EXAMPLE["documents"][ORDER[0]]["text"][int(start) : int(end)]


def test_the_sentence_that_answers(base: str) -> None:
    best, *others = rerank(base, relevant_spans={"mode": "enabled", "threshold": 0.1, "max_spans": 3})
    assert best.index == RIGHT
    check_span(best.relevant_spans[0].start, best.relevant_spans[0].end)
    scores = [span.score for span in best.relevant_spans]
    assert scores == sorted(scores, reverse=True)
    assert all(0.1 <= score <= 1 for score in scores)
    assert [other.relevant_spans for other in others] == [None, None]


def test_asynchronously(service: Service) -> None:
    async def ask() -> Any:
        async with cohere.AsyncClientV2(api_key="any", base_url=service.url) as client:
            return await client.rerank(model="any", query=QUESTION, documents=TEXTS, relevant_spans={"mode": "enabled"})

    best = asyncio.run(ask()).results[0].relevant_spans[0]
    check_span(best.start, best.end)


def test_offsets_are_code_points(service: Service) -> None:
    emoji = "🚲" * 50 + " "  # two units of UTF-16 and four bytes of UTF-8 each
    (result,) = rerank(service.url, [emoji + HANDBOOK], relevant_spans={"mode": "enabled"})
    check_span(result.relevant_spans[0].start - len(emoji), result.relevant_spans[0].end - len(emoji))


def test_no_more_than_asked_for(service: Service) -> None:
    twice = [f"{HANDBOOK} {HANDBOOK}"]
    assert (
        len(rerank(service.url, twice, relevant_spans={"mode": "enabled", "threshold": 0, "max_spans": 1})[0].relevant_spans) == 1
    )


@pytest.mark.parametrize("more", [{}, {"relevant_spans": {"mode": "disabled", "threshold": 0.1}}])
def test_none_where_none_are_asked_for(service: Service, more: dict[str, Any]) -> None:
    assert [result.relevant_spans for result in rerank(service.url, **more)] == [None, None, None]


def test_a_wrong_mode_is_named(service: Service) -> None:
    with pytest.raises(UnprocessableEntityError) as caught:
        rerank(service.url, relevant_spans={"mode": "perhaps"})
    assert caught.value.body["message"].startswith("relevant_spans.mode")
