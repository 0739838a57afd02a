"""The application on a real Ray Serve of this machine."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from select import select
from typing import IO, Any

import httpx
import pytest
from starlette.testclient import TestClient

from service.settings import DEFAULT_BUNDLE, Settings
from tests.conftest import ROOT
from tests.service.conftest import warm
from tests.service.faults import wait_for
from tests.support.ports import free_port
from tests.support.rays import imported, need_ray

START_SECONDS = 600  # Ray's processes take their time to start on a busy machine
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "OPENBLAS_NUM_THREADS": "1",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",  # a proxy that starts on a busy machine is not to be killed for it
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60",
}
REQUEST = json.loads((ROOT / "examples" / "request.json").read_text(encoding="utf-8"))
EXACT = {"provider": "cpu", "precision": "fp32", "threads": 1, "score_cache_bytes": 0}


class Cluster:
    """Ray Serve with the application, in processes of its own.

    Attributes:
        http: asks the application.
        alone: the service of one process, with the bundle that is deployed first.
    """

    def __init__(self, process: "subprocess.Popen[str]", log: Path, http: httpx.Client, alone: TestClient) -> None:
        self.http, self.alone = http, alone
        self._process, self._log = process, log

    def order(self, line: str) -> str:
        """The output of the driver once it is done."""
        stdin, stdout = self._pipes()
        stdin.write(line + "\n")
        stdin.flush()
        return stdout.readline().strip()

    def deploy(self, bundle: Path) -> None:
        order = json.dumps(EXACT | {"bundle": str(bundle)})
        assert self.order(f"deploy {order}") == "deployed", self._log.read_text(encoding="utf-8")[-2000:]

    def end(self) -> None:
        self._pipes()[0].close()
        self._process.wait(60)

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    need_ray()
    port, log = free_port(), tmp_path / "driver.log"
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | ENVIRONMENT
    command = [sys.executable, str(Path(__file__).with_name("driver.py")), str(port)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        log.open("w") as written,
        subprocess.Popen(command, cwd=ROOT, env=environment, stderr=written, **pipes) as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http,
        warm(Settings(bundle=(DEFAULT_BUNDLE,), **EXACT)) as alone,
    ):
        try:
            made = Cluster(process, log, http, alone)
            made.deploy(DEFAULT_BUNDLE)
            eventually(lambda: http.get("/health/ready").is_success)
            yield made
            made.end()
        finally:
            process.kill()


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


@pytest.mark.timeout(START_SECONDS)
def test_the_application_on_ray_serve(cluster: Cluster, bundle_path: Path, subtests: pytest.Subtests) -> None:
    """One test, since pytest-xdist would give several to several processes, each with a cluster of its own."""
    for holds in (
        the_request_of_the_readme_is_answered_as_the_service_answers_it,
        errors_and_dialects_are_the_service_s,
        operators_are_answered,
        a_deadline_is_kept_with_what_is_known_by_then,
        a_client_that_goes_away_leaves_no_work_behind,
    ):
        with subtests.test(holds.__name__):
            holds(cluster)
    with subtests.test("another bundle takes over without a request lost"):
        another_bundle_takes_over_without_a_request_lost(cluster, bundle_path)


def the_request_of_the_readme_is_answered_as_the_service_answers_it(cluster: Cluster) -> None:
    answer = cluster.http.post("/rerank", json=REQUEST).raise_for_status().json()
    assert scores(answer) == expected_of(cluster.alone)
    assert list(scores(answer)) == ["lease", "advice-column", "gym"]
    assert scores(answer)["lease"] == pytest.approx(0.428, abs=1e-2)  # as the README has it
    assert answer["meta"]["timings_ms"]["model"] > 0


def errors_and_dialects_are_the_service_s(cluster: Cluster) -> None:
    for path, body in (("/rerank", {"query": "q", "documents": [7]}), ("/no", {})):
        ours, its = cluster.http.post(path, json=body), cluster.alone.post(path, json=body)
        assert (ours.status_code, ours.json()) == (its.status_code, its.json())
    texts = {"query": REQUEST["query"], "texts": [document["text"] for document in REQUEST["documents"]]}
    answer, expected = cluster.http.post("/rerank", json=texts).json(), cluster.alone.post("/rerank", json=texts).json()
    assert [one["index"] for one in answer] == [one["index"] for one in expected]


def operators_are_answered(cluster: Cluster) -> None:
    http = cluster.http
    assert http.get("/health/ready").json() == {"status": "ready"}
    assert http.get("/health/live").json() == {"status": "live"}
    about = http.get("/info").json()
    assert (about["model"], about["provider"]["chosen"]) == ("keyb-hybrid-minilm-l6", "cpu")
    assert "keyblock_ready 1.0" in http.get("/metrics").text
    assert http.post("/admin/reload").status_code == 404


def many(count: int) -> list[str]:
    """Different documents."""
    return [f"{number} {REQUEST['documents'][2]['text']}" for number in range(count)]


def a_deadline_is_kept_with_what_is_known_by_then(cluster: Cluster) -> None:
    body = {"query": REQUEST["query"], "documents": many(200), "deadline_ms": 50}  # so many that no machine scores them by then
    answer = cluster.http.post("/rerank", json=body).json()
    assert answer["meta"]["degraded"]
    assert len(answer["results"]) == 200
    assert any("deadline_ms" in warning for warning in answer["meta"]["warnings"])


def a_client_that_goes_away_leaves_no_work_behind(cluster: Cluster) -> None:
    """Serve cancels the request and what it asks for in any order. One that is answered before it is left is another try."""
    body = json.dumps({"query": REQUEST["query"], "documents": many(300), "top_n": 300})  # as many, so that none is skipped
    first = before = outcomes(cluster.http)
    while before["cancelled"] < first["cancelled"] + 5:
        connection = HTTPConnection(cluster.http.base_url.netloc.decode())
        connection.request("POST", "/rerank", body, {"content-type": "application/json"})
        eventually(lambda: cluster.order("waiting") != "0" or bool(select([connection.sock], [], [], 0)[0]))  # noqa: B023
        connection.close()
        eventually(lambda: cluster.order("waiting") == "0")
        eventually(lambda: outcomes(cluster.http).total() > before.total())  # noqa: B023 - asked at once
        before = outcomes(cluster.http)
        assert before["failed"] == first["failed"]


def outcomes(http: httpx.Client) -> Counter[str]:
    """How many requests ended how."""
    line = r'^keyblock_requests_total\{dialect="native",outcome="(\w+)"\} (\S+)$'
    return Counter({how: int(float(number)) for how, number in re.findall(line, http.get("/metrics").text, re.MULTILINE)})


def another_bundle_takes_over_without_a_request_lost(cluster: Cluster, bundle_path: Path) -> None:
    """Each answer is whole: the scores are those of the model that it names, and of no other."""
    with warm(Settings(bundle=(bundle_path,), **EXACT)) as tiny:
        expected = {"keyb-hybrid-minilm-l6": expected_of(cluster.alone), "tiny": expected_of(tiny)}
    answers: list[httpx.Response] = []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            answers.append(httpx.post(cluster.http.base_url.join("/rerank"), json=REQUEST, timeout=60))
            time.sleep(0.05)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    cluster.deploy(bundle_path)
    eventually(lambda: cluster.http.post("/rerank", json=REQUEST).json()["model"] == "tiny")
    done.set()
    for thread in threads:
        thread.join()
    assert {answer.status_code for answer in answers} == {200}
    named = [answer.json() for answer in answers]
    assert {answer["model"] for answer in named} == set(expected)
    assert all(scores(answer) == expected[answer["model"]] for answer in named)
