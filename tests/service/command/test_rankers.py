"""Both rankers find what POST /rerank answers: the same blocks, and scores that differ by the arithmetic of batches at most."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keyblock.client import Client, InvalidRequestError
from keyblock.ranking.order import ScoredBy
from service.command.inputs import Input
from service.command.local import LocalRanker
from service.command.rankers import Asked, CommandError, Ranker, RemoteRanker, shown_score
from service.command.report import Report
from service.settings import Settings
from tests.service.rankers import another
from tests.support.serving import Service

SETTINGS = Settings(provider="cpu", threads=2)
NEAR = 0.02  # of a score: bf16, in other batches


@pytest.fixture(params=["local", "remote"])
def make(request: pytest.FixtureRequest, running: Service) -> Iterator[Any]:
    with Client(running.url) as client:

        def made(query: str, budget: int | None, report: Report, top: int = 0) -> Ranker:
            asked = Asked(query, budget, top=top)
            return LocalRanker(SETTINGS, asked, report) if request.param == "local" else RemoteRanker(client, asked, report)

        yield made


def collection(lease: dict[str, Any]) -> list[Input]:
    """The README's documents, with and without titles, and the same of shuffled sentences."""
    generator = random.Random(0)
    found = []
    for document in lease["documents"]:
        sentences = document["text"].split(". ")
        found.append(Input(document["id"], document["text"], document["title"]))
        for number in range(6):
            generator.shuffle(sentences)
            found.append(Input(f"{document['id']} {number}", ". ".join(sentences * 3)))
    return [*found, Input("empty", " \n"), Input("odd", "النهر 😀 e\u0301 東京都 tenant\x00 lease")]


@pytest.mark.parametrize("budget", [None, 96])
def test_what_is_found_is_what_the_service_answers(make: Any, running: Service, lease: dict[str, Any], budget: int | None) -> None:
    inputs = collection(lease)
    with Client(running.url) as client:
        documents = [{"text": one.text, "title": one.title} for one in inputs]
        expected = {r.index: r for r in client.rerank(lease["query"], documents, max_tokens_per_doc=budget, top_n=len(inputs))}
    ranker = make(lease["query"], budget, Report())
    found = {result.index: result for result in ranker.rank(inputs)}
    assert len(found) == len(expected) == len(inputs)
    for number, one in found.items():
        assert shown_score(one, ranker.activation) == pytest.approx(expected[number].relevance_score, abs=NEAR)
        assert one.scored_by == expected[number].scored_by
        assert [(b.start, b.end) for b in one.blocks] == [(b.start, b.end) for b in expected[number].blocks]
    empty = found[len(inputs) - 2]
    assert (shown_score(empty, ranker.activation), empty.scored_by, empty.blocks) == (0.0, ScoredBy.ORDER, ())


@pytest.mark.parametrize("top", [40, 0])
def test_each_document_that_is_shown_has_been_read(make: Any, capsys: pytest.CaptureFixture[str], top: int) -> None:
    inputs = [Input(str(number), f"{number}: {('a hedge', 'the lease')[number % 2]}.") for number in range(64)]
    found = make("end the lease early", None, Report(), top).rank(inputs)
    assert [one.scored_by for one in found] == [ScoredBy.MODEL] * (top or 64)
    assert capsys.readouterr().err == ""


def test_a_budget_that_was_never_measured_is_kept_inside(make: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ranker = make("lease " * 100, 10_000, Report())
    assert len(ranker.rank([Input("a", "the lease of a flat")])) == 1
    said = capsys.readouterr().err
    assert "256" in said
    assert "of its 100 tokens" in said


def test_a_document_that_the_service_refuses_stops_no_other(running: Service, capsys: pytest.CaptureFixture[str]) -> None:
    report = Report()
    with Client(running.url) as client:
        ranker = RemoteRanker(client, Asked("lease"), report)
        inputs = [Input("a", "the lease"), Input("huge.txt", "x" * 2_000_001), Input("b", "a flat"), Input("also", "y" * 2_000_001)]
        assert [one.index for one in ranker.rank(inputs)] == [0, 2]
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "keyblock: huge.txt: refused by the service: has 2000001 characters, limit 2000000"
    assert (len(said), report.failed) == (2, True)


def test_scores_go_through_the_activation_of_the_bundle(lease: dict[str, Any], bundle_path: Path, tmp_path: Path) -> None:
    """The output equals the answer of POST /rerank; if the bundle's scores are logits, no sigmoid is applied."""
    bundle = another(bundle_path, tmp_path / "bundle", "logits", activation={"name": "identity", "scale": 2.0})
    inputs, report = [*collection(lease)[:3], Input("empty", "")], Report()
    with Service(2, tmp_path / "log", bundle=bundle, provider="cpu", precision="fp32") as service, Client(service.url) as client:
        texts = [{"text": one.text, **({"title": one.title} if one.title else {})} for one in inputs]
        expected = {result.index: result.relevance_score for result in client.rerank(lease["query"], texts)}
        settings = Settings(bundle=(bundle,), provider="cpu", precision="fp32", threads=2)
        asked = Asked(lease["query"])
        rankers: list[Ranker] = [RemoteRanker(client, asked, report), LocalRanker(settings, asked, report)]
        found = [{one.index: shown_score(one, ranker.activation) for one in ranker.rank(inputs)} for ranker in rankers]
    assert found == [pytest.approx(expected, abs=1e-3)] * 2
    assert not all(0 <= score <= 1 for score in expected.values())


def test_a_model_is_named_or_there_is_an_error(running: Service) -> None:
    report = Report()
    inputs = [Input("a", "the lease"), Input("b", "a flat")]
    asked, unknown = (Asked("lease", model=name) for name in (running.info["model"], "nobody"))
    with Client(running.url) as client:
        rankers: list[Ranker] = [LocalRanker(SETTINGS, asked, report), RemoteRanker(client, asked, report)]
        assert [len(ranker.rank(inputs)) for ranker in rankers] == [2, 2]
        with pytest.raises(CommandError, match="--model: there is no 'nobody'; there is keyb"):
            LocalRanker(SETTINGS, unknown, report)
        with pytest.raises(InvalidRequestError, match="nobody"):
            RemoteRanker(client, unknown, report).rank(inputs)
