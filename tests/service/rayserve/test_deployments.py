"""The application on a real Ray Serve of this machine."""

import asyncio
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from select import select
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from service.remote.replicas import GoneError
from service.settings import Settings
from tests.service.conftest import warm
from tests.service.faults import wait_for
from tests.service.rayserve.conftest import EXACT, REQUEST, ROOT, Cluster
from tests.support.rays import imported

START_SECONDS = 600  # Ray's processes take their time to start on a busy machine
pytestmark = pytest.mark.timeout(START_SECONDS)


@pytest.fixture(scope="module")
def service() -> Any:
    """The same bundle in the service of one process."""
    with warm(Settings(bundle=(ROOT / "models" / "default",), **EXACT)) as client:
        yield client


def scores(answer: Any) -> dict[str, float]:
    """Best first."""
    return {result["id"]: result["relevance_score"] for result in answer["results"]}


def expected_of(service: TestClient) -> Any:
    return pytest.approx(scores(service.post("/rerank", json=REQUEST).json()), abs=1e-4)


def eventually(holds: Callable[[], bool]) -> None:
    wait_for(holds, START_SECONDS, pause=0.05)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"bundle": "models/default", "token_cap": "many"}, "--token-cap: Input should be a valid integer"),
        ({"bundel": "models/default"}, "'bundel' is no setting"),
    ],
)
def test_a_wrong_argument_is_an_error_before_anything_is_deployed(arguments: dict[str, str], said: str) -> None:
    build = imported("service.rayserve.deployments").build
    with pytest.raises(ValueError, match=said) as raised:
        build(arguments)
    assert "\n" not in str(raised.value)


def test_the_request_of_the_readme_is_answered_as_the_service_answers_it(http: httpx.Client, service: TestClient) -> None:
    answer = http.post("/rerank", json=REQUEST).raise_for_status().json()
    assert scores(answer) == expected_of(service)
    assert list(scores(answer)) == ["lease", "advice-column", "gym"]
    assert scores(answer)["lease"] == pytest.approx(0.428, abs=1e-2)  # as the README has it
    assert answer["meta"]["timings_ms"]["model"] > 0


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/rerank", {"query": "q", "documents": [7]}),
        ("/no", {}),
    ],
)
def test_errors_and_dialects_are_the_service_s(http: httpx.Client, service: TestClient, path: str, body: Any) -> None:
    ours, its = http.post(path, json=body), service.post(path, json=body)
    assert (ours.status_code, ours.json()) == (its.status_code, its.json())
    texts = {"query": REQUEST["query"], "texts": [document["text"] for document in REQUEST["documents"]]}
    answer, expected = http.post("/rerank", json=texts).json(), service.post("/rerank", json=texts).json()
    assert [one["index"] for one in answer] == [one["index"] for one in expected]


def test_what_operators_ask(http: httpx.Client) -> None:
    assert http.get("/health/ready").json() == {"status": "ready"}
    assert http.get("/health/live").json() == {"status": "live"}
    about = http.get("/info").json()
    assert (about["model"], about["provider"]["chosen"]) == ("keyb-hybrid-minilm-l6", "cpu")
    assert "keyblock_ready 1.0" in http.get("/metrics").text
    assert http.post("/admin/reload").status_code == 404


def test_a_deadline_is_kept_with_what_is_known_by_then(http: httpx.Client) -> None:
    text = REQUEST["documents"][2]["text"]
    documents = [f"{number} {text}" for number in range(200)]  # so many that no machine scores them by then
    answer = http.post("/rerank", json={"query": REQUEST["query"], "documents": documents, "deadline_ms": 50}).json()
    assert answer["meta"]["degraded"]
    assert len(answer["results"]) == 200
    assert any("deadline_ms" in warning for warning in answer["meta"]["warnings"])


def test_a_client_that_goes_away_leaves_no_work_behind(cluster: Cluster, http: httpx.Client) -> None:
    """Serve cancels the request and what it asks for in any order. One that is answered before it is left is another try."""
    text = REQUEST["documents"][2]["text"]
    documents = [f"{number} {text}" for number in range(300)]
    body = {"query": REQUEST["query"], "documents": documents, "top_n": len(documents)}  # so many that none is skipped
    first = before = outcomes(http)
    while before["cancelled"] < first["cancelled"] + 5:
        connection = HTTPConnection(httpx.URL(cluster.url).netloc.decode())
        connection.request("POST", "/rerank", json.dumps(body), {"content-type": "application/json"})
        eventually(lambda: cluster.order("waiting") != "0" or bool(select([connection.sock], [], [], 0)[0]))  # noqa: B023
        connection.close()
        eventually(lambda: cluster.order("waiting") == "0")
        eventually(lambda: outcomes(http).total() > before.total())  # noqa: B023 - asked at once
        before = outcomes(http)
        assert before["failed"] == first["failed"]


def outcomes(http: httpx.Client) -> Counter[str]:
    """How many requests ended how."""
    line = r'^keyblock_requests_total\{dialect="native",outcome="(\w+)"\} (\S+)$'
    return Counter({how: int(float(number)) for how, number in re.findall(line, http.get("/metrics").text, re.MULTILINE)})


class Call:
    """Of a replica: it ends at once as cancelled, or never."""

    def __init__(self, *, ends: bool) -> None:
        self.ends, self.is_cancelled = ends, False

    def __await__(self) -> Any:
        if self.ends:
            raise asyncio.CancelledError
        return asyncio.Event().wait().__await__()

    def cancel(self) -> None:
        self.is_cancelled = True

    def remote(self) -> "Call":
        return self


def started_call(call: Call) -> "asyncio.Task[Any]":
    ask = imported("service.rayserve.deployments").caller_of(SimpleNamespace(report=call))
    return asyncio.create_task(ask("report"))


def test_a_call_that_serve_cancels_waits_until_its_request_is_cancelled_or_else_is_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def leave() -> None:
        first = started_call(Call(ends=True))
        await asyncio.sleep(0.05)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        monkeypatch.setattr("service.rayserve.deployments.LEAVING_SECONDS", 0.0)
        with pytest.raises(GoneError):
            await started_call(Call(ends=True))

    asyncio.run(leave())


def test_a_call_whose_request_is_cancelled_is_cancelled() -> None:
    async def leave() -> None:
        call = Call(ends=False)
        task = started_call(call)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert call.is_cancelled

    asyncio.run(leave())


def test_another_bundle_takes_over_without_a_request_lost(
    cluster: Cluster, http: httpx.Client, service: TestClient, bundle_path: Path
) -> None:
    """Each answer is whole: the scores are those of the model that it names, and of no other."""
    with warm(Settings(bundle=(bundle_path,), **EXACT)) as tiny:
        expected = {"keyb-hybrid-minilm-l6": expected_of(service), "tiny": expected_of(tiny)}
    answers: list[httpx.Response] = []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            answers.append(httpx.post(f"{cluster.url}/rerank", json=REQUEST, timeout=60))
            time.sleep(0.05)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    cluster.deploy(bundle_path)
    eventually(lambda: http.post("/rerank", json=REQUEST).json()["model"] == "tiny")
    done.set()
    for thread in threads:
        thread.join()
    assert {answer.status_code for answer in answers} == {200}
    named = [answer.json() for answer in answers]
    assert {answer["model"] for answer in named} == set(expected)
    assert all(scores(answer) == expected[answer["model"]] for answer in named)
