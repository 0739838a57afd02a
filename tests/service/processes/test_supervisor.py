"""Several processes are one service: on real processes, whatever becomes of them."""

import json
import os
import random
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from errno import ENOSPC
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import pytest
from starlette.testclient import TestClient

from service.cli import main
from service.http.listeners import bind, claimed_ports
from service.processes.supervisor import open_standard_streams
from service.settings import Settings
from tests.service.conftest import ROOT, warm
from tests.service.faults import PATIENCE
from tests.service.keyed import bearing, keyed
from tests.service.processes.conftest import EXACT, Served, eventually, serving
from tests.service.rankers import another
from tests.service.test_kinds import DOCUMENTS, QUERY, WORDS
from tests.support.ports import free_port
from tests.support.processes import command_of

pytestmark = pytest.mark.skipif(not Path("/proc").exists(), reason="looks into /proc for processes")
SEED = 7


@pytest.fixture(scope="module")
def bundles(bundle_path: Path, by_vectors: Path, bundle_of: Callable[[str], Path]) -> list[Path]:
    """One that marks spans, one whose blocks a learned selector chooses, one without a graph to score with, and the tiny one."""
    return [ROOT / "models" / "default", bundle_of("parade by binb2"), by_vectors, bundle_path]


@pytest.fixture(scope="module")
def served(bundles: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    limits = {"max_documents": 64, "max_body_bytes": 1_000_000, "max_requests_in_flight": 2}
    folder = tmp_path_factory.mktemp("processes")
    with serving(folder, bundles, store=folder / "documents", **limits) as served:
        yield served


@pytest.fixture(scope="module")
def one_process(bundles: list[Path]) -> Iterator[TestClient]:
    """The same service in one process."""
    settings = Settings(**EXACT | {"bundle": tuple(bundles), "processes": 1, "max_documents": 64, "max_body_bytes": 1_000_000})
    with warm(keyed(settings)) as client:
        client.headers.update(bearing("alice"))
        yield client


def random_request(seed: int) -> Any:
    """A random request for one of the models, with a random option."""
    chance = random.Random(seed)
    several = chance.randrange(1, 9)
    documents = [" ".join(chance.choices([*WORDS, "tenant.", "lease?"], k=chance.randrange(0, 400))) for _ in range(several)]
    more: list[dict[str, Any]] = [
        {"return_blocks": True},
        {"explain": True},
        {"relevant_spans": {"mode": "enabled"}},
        {"max_tokens_per_doc": 96, "top_n": 2},
        {"deadline_ms": 60_000, "priority": 2},
        {"prune": True},
    ]
    model = chance.choice(["keyb-bm25-minilm-l6", "parade by binb2", "vectors", "tiny"])
    return {"query": QUERY, "documents": documents, "model": model, **chance.choice(more)}


def nearly_equal(answer: Any, expected: Any) -> bool:
    """Whether two answers are equal, except for the last digits of numbers."""
    if isinstance(expected, dict):
        return answer.keys() == expected.keys() and all(nearly_equal(answer[key], value) for key, value in expected.items())
    if isinstance(expected, list):
        return len(answer) == len(expected) and all(map(nearly_equal, answer, expected))
    return bool(answer == (pytest.approx(expected, abs=1e-3) if isinstance(expected, float) else expected))


def lasting_fields(answer: Any) -> Any:
    """The fields of an answer that do not depend on timing."""
    return {"model": answer["model"], "results": answer["results"], "degraded": answer["meta"]["degraded"]}


class Begun:
    """A request in flight: the service has half of its body."""

    def __init__(self, served: Served, operators: str = "") -> None:
        body = json.dumps({"query": QUERY, "documents": DOCUMENTS, "model": "tiny"}).encode()
        self._rest = body[len(body) // 2 :]

        def seen() -> float:
            return sum(counted(served, f"keyblock_{name}", operators) for name in ("in_flight_requests", "refused_total"))

        before = seen()
        self._connection = HTTPConnection(*served.url.removeprefix("http://").split(":"), timeout=PATIENCE)
        self._connection.putrequest("POST", "/rerank")
        for name, value in {**bearing("alice"), "Content-Length": str(len(body))}.items():
            self._connection.putheader(name, value)
        self._connection.endheaders(body[: len(body) // 2])
        eventually(lambda: seen() > before)

    def finished(self) -> tuple[int, str]:
        """Send the rest of the body; returns the status and the answer."""
        with closing(self._connection):
            self._connection.send(self._rest)
            response = self._connection.getresponse()
            return response.status, response.read().decode()

    def lost(self) -> None:
        """Leave it."""
        self._connection.close()


def let_in(served: Served, operators: str = "") -> Begun:
    """One that is in flight: on a busy machine a front may not have heard of the model for a moment, and refuses."""
    while True:
        before = counted(served, "keyblock_refused_total", operators)
        begun = Begun(served, operators)
        if counted(served, "keyblock_refused_total", operators) == before:
            return begun
        begun.finished()


def counted(served: Served, name: str, operators: str = "") -> float:
    """Of all labels; at the operators' address, where they have one."""
    text = served.ask("GET", f"{operators}/metrics", "ops").raise_for_status().text
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if re.match(rf"{name}[ {{]", line))


def test_the_request_of_the_readme(served: Served, one_process: TestClient, readme: Any) -> None:
    answer = served.rerank(readme).raise_for_status().json()
    assert [result["id"] for result in answer["results"]] == ["lease", "advice-column", "gym"]
    assert nearly_equal(lasting_fields(answer), lasting_fields(one_process.post("/rerank", json=readme).json()))


@pytest.mark.parametrize("seed", range(SEED, SEED + 12))
def test_a_random_request_is_answered_as_by_one_process(served: Served, one_process: TestClient, seed: int) -> None:
    body = random_request(seed)
    answer, expected = served.rerank(body), one_process.post("/rerank", json=body)
    assert answer.status_code == expected.status_code
    assert nearly_equal(*((lasting_fields(one.json()) if one.is_success else one.json()) for one in (answer, expected)))


@pytest.mark.parametrize(
    ("content", "status"),
    [(b"{", 400), (b'{"query": "q", "documents": []}', 422), (b" " * 1_000_001, 413), (b"\x1f\x8b no gzip", 400)],
)
def test_errors_are_those_of_one_process(served: Served, one_process: TestClient, content: bytes, status: int) -> None:
    ours, its = served.ask("POST", "/rerank", content=content), one_process.post("/rerank", content=content)
    assert (ours.status_code, ours.json()) == (its.status_code, its.json())
    assert ours.status_code == status


def test_keys_hold_at_every_front(served: Served) -> None:
    assert {httpx.post(f"{served.url}/rerank", json={}).status_code for _ in range(8)} == {401}
    assert {served.ask("POST", "/admin/reload", "alice").status_code for _ in range(8)} == {403}


def test_limits_hold_for_all_fronts_together(served: Served) -> None:
    """2 requests in flight, whichever front has them: one may have both, and a third finds no room at either."""
    about = served.ask("GET", "/info").json()
    assert (about["processes"], about["threads"], about["limits"]["max_requests_in_flight"]) == (2, 1, 2)
    for _ in range(3):
        begun = let_in(served), let_in(served)
        eventually(lambda: "2 requests are in flight, which is the limit" in Begun(served).finished()[1])
        assert [one.finished()[0] for one in begun] == [200, 200]


def test_what_a_killed_front_held_others_may_hold(served: Served) -> None:
    """All the room that there is: nobody would be let in again."""
    begun = let_in(served), let_in(served)
    for front in served.children("front"):
        served.kill(front)
    for one in begun:
        one.lost()
    eventually(lambda: len(served.children("front")) == 2 and served.steadily(200))
    assert served.rerank({"query": QUERY, "documents": DOCUMENTS, "model": "tiny"}).status_code == 200


def test_every_process_reports_the_metrics_of_all_processes(served: Served) -> None:
    before = counted(served, "keyblock_requests_total")
    documents, tokens = counted(served, "keyblock_documents_total"), counted(served, "keyblock_tokens_total")
    body = {"query": QUERY, "documents": DOCUMENTS[:3], "model": "tiny"}
    answers = [served.rerank(body).raise_for_status().json() for _ in range(10)]
    for _ in range(6):
        assert counted(served, "keyblock_requests_total") == before + 10
        assert counted(served, "keyblock_documents_total") == documents + 30
        assert counted(served, "keyblock_tokens_total") > tokens, "which the model's process counts"
    assert len(answers) == 10
    assert counted(served, "keyblock_ready") == 1


def test_a_front_that_is_killed_is_started_again_and_what_it_counted_stays(served: Served) -> None:
    requests, fronts, begun = counted(served, "keyblock_requests_total"), served.children("front"), served.n_begun
    restarts = 'keyblock_process_restarts_total{process="front",why="killed"}'
    before = counted(served, restarts)
    served.kill(fronts[0])
    eventually(lambda: served.n_begun > begun and served.steadily(200))
    assert served.rerank({"query": QUERY, "documents": DOCUMENTS, "model": "tiny"}).status_code == 200
    assert counted(served, "keyblock_requests_total") == requests + 1
    assert "front process 1 ended with -9; it is started again in 0 s" in served.log
    assert [counted(served, restarts) for _ in range(4)] == [before + 1] * 4, "whichever front is asked"


def test_documents_in_a_directory_are_of_all_fronts_and_none_acknowledged_is_lost(served: Served) -> None:
    """One front is killed while documents are stored: who waits for it is not answered, and what was acknowledged is there."""
    stored, begun = list[str](), served.n_begun
    for number in range(40):
        if number == 20:
            os.kill(served.children("front")[1], signal.SIGKILL)
        with suppress(httpx.TransportError):
            line = json.dumps({"id": str(number), "text": f"{number} rivers"})
            served.ask("PUT", "/documents", content=line).raise_for_status()
            stored.append(str(number))
    eventually(lambda: served.n_begun > begun and served.steadily(200))
    assert len(stored) > 30
    for identity in stored * 2:
        assert served.ask("GET", f"/documents/{identity}").json()["text"] == f"{identity} rivers"
    answer = served.rerank({"query": "rivers", "documents": [{"id": identity} for identity in stored], "model": "tiny"})
    assert len(answer.raise_for_status().json()["results"]) == len(stored)


def test_another_service_finds_port_and_store_taken(served: Served, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Though its processes would share both among themselves."""
    port = served.url.rpartition(":")[2]
    assert main(["--processes", "2", "--port", port]) == 2
    assert f"keyblock-serve: cannot listen on 127.0.0.1, port {port} (Address already in use)" in capfd.readouterr().err
    assert main(["--processes", "2", "--port", "0", "--store", str(served.folder / "documents")]) == 2
    assert "another process uses this store" in capfd.readouterr().err


def test_another_service_that_starts_at_all_addresses_finds_the_port_of_one_taken(capfd: pytest.CaptureFixture[str]) -> None:
    """Nobody listens yet: the system would let both have it."""
    (ours,) = bind("127.0.0.1", 0)
    port = ours.getsockname()[1]
    with ours, claimed_ports([ours]):
        assert main(["--processes", "2", "--host", "0.0.0.0", "--port", str(port)]) == 2
    assert f"keyblock-serve: cannot listen on 0.0.0.0, port {port} (another keyblock-serve has 127.0.0.1" in capfd.readouterr().err


def test_a_model_that_is_killed_is_started_again_and_what_waited_is_answered(served: Served, one_process: TestClient) -> None:
    """A request whose body has not arrived is in flight: its documents are scored by the next process."""
    batches, waiting = counted(served, "keyblock_batches_total"), Begun(served)
    with held(served):
        for model in served.children("model:"):
            os.kill(model, signal.SIGKILL)
        eventually(lambda: served.steadily(503))
        assert served.steadily(200, "/health/live")
        refused = served.rerank({"query": QUERY, "documents": ["a"]})
        assert (refused.status_code, refused.json()["error"]["type"]) == (503, "unready")
        assert refused.headers["Retry-After"]
    assert waiting.finished()[0] == 200
    eventually(lambda: served.steadily(200))
    assert counted(served, "keyblock_batches_total") >= batches


@contextmanager
def held(served: Served) -> Iterator[None]:
    """The supervisor is stopped, and starts nothing meanwhile."""
    served.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        served.process.send_signal(signal.SIGCONT)


def test_another_bundle_comes_with_a_reload_and_sigterm_ends_all(bundle_path: Path, tmp_path: Path) -> None:
    """Whichever front is asked, by HTTP or by a signal; and a bad one leaves all as they were."""

    def budgets() -> set[int]:
        """What answers tell; of one that is refused, since a front has just begun, its status."""
        answers = [served.rerank({"query": QUERY, "documents": ["a river"]}) for _ in range(12)]
        return {one.json()["meta"]["tokens_per_document"] if one.is_success else one.status_code for one in answers}

    def put(tokens: int) -> None:
        another(bundle_path, place, "tiny", packing={"budget": tokens, "budget_range": (64, 256)})

    place = tmp_path / "bundle"
    put(100)
    port = free_port()
    with serving(tmp_path, [place], admin_port=port) as served:
        assert budgets() == {100}
        put(110)
        reload = f"http://127.0.0.1:{port}/admin/reload"
        assert served.ask("POST", reload, "ops").json()["loaded"] == ["tiny"]
        assert budgets() == {110}
        put(120)
        served.process.send_signal(signal.SIGHUP)
        eventually(lambda: budgets() == {120})
        (place / "bundle.json").write_text("{", encoding="utf-8")
        refused = served.ask("POST", reload, "ops")
        assert refused.status_code == 409
        assert "nothing has changed" in refused.json()["message"]
        assert budgets() == {120}
        for tokens, work in ((130, "model:"), (140, "front:")):
            put(tokens)
            served.kill(served.children(work)[0])
            eventually(lambda: served.steadily(200) and budgets() == {tokens})  # noqa: B023 - asked at once
        eventually(lambda: served.n_begun == 3)
        assert ends(served, signal.SIGTERM, f"http://127.0.0.1:{port}") == 0


def test_processes_of_a_killed_supervisor_answer_what_is_in_flight_and_end(bundle_path: Path, tmp_path: Path) -> None:
    with serving(tmp_path, [bundle_path]) as served:
        assert ends(served, signal.SIGKILL) == -signal.SIGKILL


def ends(served: Served, how: signal.Signals, operators: str = "") -> int:
    """The supervisor's exit code; what was in flight is answered, and no process and no directory stays."""
    children, waiting = served.children(), let_in(served, operators)
    (place,) = {socket.parent for socket in sockets_of(children)}
    for pid in [served.process.pid, *(children if how is signal.SIGTERM else ())]:  # to all at once, as service managers do
        os.kill(pid, how)
    eventually(lambda: served.log.count("Shutting down") == 2)
    status, answer = waiting.finished()
    assert status == 200, answer
    code = served.process.wait()
    eventually(lambda: not any(map(command_of, children)) and not place.exists())
    assert served.health() == 0
    assert "Traceback" not in served.log
    return code


def sockets_of(children: list[int]) -> set[Path]:
    """Where processes of the service listen for each other."""
    listed = [line.split() for line in Path("/proc/net/unix").read_text(encoding="utf-8").splitlines()]
    paths = {parts[6]: Path(parts[7]) for parts in listed if len(parts) == 8 and parts[7].endswith("/model")}
    held = set[str]()
    for link in (link for child in children for link in Path(f"/proc/{child}/fd").iterdir()):
        with suppress(FileNotFoundError):  # a connection that is closed meanwhile
            held.add(os.readlink(link))
    return {path for inode, path in paths.items() if f"socket:[{inode}]" in held}


def test_a_directory_whose_name_is_too_long_for_a_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / ("long" * 40)
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    assert main(["--processes", "2", "--port", "0"]) == 2
    assert f"keyblock-serve: processes cannot have a socket at {place}" in (said := capfd.readouterr().err)
    assert said.endswith("set TMPDIR to a shorter path\n")
    assert not list(place.iterdir())


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("service.processes.supervisor.loads_file", Mock(side_effect=OSError(ENOSPC, os.strerror(ENOSPC))))
    assert main(["--processes", "2", "--port", "0"]) == 2
    assert "need a directory for what they share (No space left on device): set TMPDIR to one" in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_standard_input_that_is_closed_leads_nowhere() -> None:
    """Else a socket would take its number."""
    kept = os.dup(0)
    try:
        os.close(0)
        open_standard_streams()
        assert os.path.samestat(os.fstat(0), os.stat(os.devnull))
        assert os.get_inheritable(0)
    finally:
        os.dup2(kept, 0)
        os.close(kept)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--bundle", "/nowhere"], "keyblock-serve: /nowhere"),
        (["--api-keys", "nonsense"], "keyblock-serve: "),
        (["--processes", "0"], "keyblock-serve: --processes: Input should be greater than or equal to 1"),
    ],
)
def test_what_cannot_start_says_so_in_one_line(flags: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--processes", "2", "--port", "0", *flags]) == 2
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("keyblock-serve")]
    assert len(lines) == 1
    assert lines[0].startswith(said)
