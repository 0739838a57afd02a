"""A service without keys, and what web pages of others make a browser send to it: real requests, and a real browser."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from service.app import create_app
from service.http.sockets import are_loopback, bind
from service.ranking.ranker import Ranker
from service.settings import Settings
from tests.service.browser import chromium
from tests.service.faults import wait_for
from tests.service.keyed import bearing, keyed
from tests.support.serving import Service

GOOD: dict[str, Any] = {"query": "river bridge", "documents": ["the river flooded the bridge", "a city"]}
BODY = json.dumps(GOOD).encode()
ACTS = (("POST", "/rerank"), ("POST", "/v2/rerank/"), ("POST", "/admin/reload"), ("PUT", "/documents"), ("DELETE", "/documents/a"))
EVIL = "https://evil.example"
FOREIGN = ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example", "7f000001")
OWN = ("localhost", "LOCALHOST:8000", "localhost.:80", "a.localhost", "127.0.0.1:1", "10.0.0.7", "[::1]:80")


@pytest.fixture(scope="module")
def served(bundle_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a service in a process of its own."""
    work = tmp_path_factory.mktemp("browsers")
    options = {"bundle": bundle_path, "store": work / "store", "cors_origins": "https://app.example, https://b.example"}
    with Service(1, work / "log", provider="cpu", **options) as service, httpx.Client(base_url=service.url, timeout=60) as client:
        yield client


def ask(client: httpx.Client, method: str = "POST", path: str = "/rerank", body: bytes = BODY, **headers: str) -> httpx.Response:
    return client.request(method, path, content=body, headers={name.replace("_", "-"): text for name, text in headers.items()})


def status(client: httpx.Client, method: str = "POST", path: str = "/rerank", body: bytes = BODY, **headers: str) -> int:
    return ask(client, method, path, body, **headers).status_code


def denied(client: httpx.Client, why: str) -> float:
    line = f'keyblock_denied_total{{why="{why}"}} '
    return next(float(one.removeprefix(line)) for one in client.get("/metrics").text.splitlines() if one.startswith(line))


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": EVIL},
        {"Origin": EVIL, "Content_Type": "text/plain"},
        {"Origin": EVIL, "Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"},
        {"Origin": "http://127.0.0.1:1", "Sec_Fetch_Site": "same-site"},  # another port is another origin
        {"Origin": "http://["},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Origin": "https://app.example.evil.example"},
    ],
    ids=str,
)
def test_a_page_of_another_origin_may_not_act(served: httpx.Client, headers: dict[str, str]) -> None:
    before = denied(served, "origin")
    problem = "may not send this to a service without API keys: name the origin in KEYBLOCK_CORS_ORIGINS"
    for method, path in ACTS:
        answer = ask(served, method, path, **headers)
        assert (answer.status_code, problem in answer.json()["message"]) == (403, True), path
    assert denied(served, "origin") == before + len(ACTS)


@pytest.mark.parametrize(
    "own", [{}, {"Sec_Fetch_Site": "same-origin"}, {"Sec_Fetch_Site": "none"}, {"Origin": "https://b.example"}]
)
def test_clients_its_own_pages_and_named_origins_may(served: httpx.Client, own: dict[str, str]) -> None:
    assert status(served, "PUT", "/documents", b'{"id": "a", "text": "a river"}', **own) == 200
    assert status(served, Content_Type="text/plain", **own) == 200
    assert status(served, "POST", "/admin/reload", b"", **own) == 200
    assert status(served, "DELETE", "/documents/a", b"", **own) == 200


def test_an_origin_is_its_own_by_the_host_that_the_request_names(served: httpx.Client) -> None:
    """Browsers send no Sec-Fetch-Site to a plain http:// name; the scheme may be that of a proxy."""
    place = served.base_url.netloc.decode()
    for origin in (f"http://{place}", f"https://{place}"):
        assert status(served, Origin=origin) == 200
    assert status(served, Origin="http://search.localhost", Host="search.localhost") == 200
    assert status(served, Origin="http://127.0.0.1") == 403


def test_reading_is_left_to_cors(served: httpx.Client) -> None:
    for path in ("/", "/info", "/metrics", "/health/ready"):
        assert status(served, "GET", path, b"", Origin=EVIL, Sec_Fetch_Site="cross-site") == 200


@pytest.mark.parametrize("host", FOREIGN)
def test_a_foreign_host_is_refused_on_a_loopback_address(served: httpx.Client, host: str) -> None:
    """To a browser such a page is of the service's own origin (DNS rebinding)."""
    before = denied(served, "host")
    every = [*ACTS, ("GET", "/documents/a"), ("GET", "/"), ("GET", "/health/live")]
    for method, path in every:
        answer = ask(served, method, path, Host=host, Origin=f"http://{host}", Sec_Fetch_Site="same-origin")
        assert answer.status_code == 403
        assert f"the Host '{host}' is no name of this machine" in answer.json()["message"]
    assert denied(served, "host") == before + len(every)


@pytest.mark.parametrize("host", OWN)
def test_names_of_this_machine_and_addresses_are_taken(served: httpx.Client, host: str) -> None:
    assert status(served, Host=host) == 200


def test_the_refused_body_is_read_and_the_connection_goes_on(served: httpx.Client) -> None:
    connection = HTTPConnection(served.base_url.netloc.decode(), timeout=60)
    for headers, expected in (({"Origin": EVIL}, 403), ({}, 200)):
        connection.request("POST", "/rerank", BODY.ljust(1 << 20), headers)
        answer = connection.getresponse()
        assert (answer.status, bool(answer.read())) == (expected, True)
        assert answer.headers["x-request-id"]
    connection.close()


def client_of(settings: Settings, ranker: Ranker, *, loopback: bool) -> TestClient:
    return TestClient(create_app(settings, ranker, loopback=loopback), base_url="http://localhost")


def test_settings_allow_both(settings: Settings, ranker: Ranker) -> None:
    allowing = settings.model_copy(update={"cross_site_writes": True, "allowed_hosts": "search.internal, PC.example"})
    client = client_of(allowing, ranker, loopback=True)
    assert status(client, Origin=EVIL, Sec_Fetch_Site="cross-site") == 200
    assert status(client, Host="search.internal:8000") == status(client, Host="pc.example") == 200
    assert status(client, Host="evil.example") == 403
    for every in ({"cors_origins": "*"}, {"allowed_hosts": "*"}):
        client = client_of(settings.model_copy(update=every), ranker, loopback=True)
        assert status(client, Origin=EVIL) == (200 if "cors_origins" in every else 403)
        assert status(client, Host="evil.example") == (200 if "allowed_hosts" in every else 403)


def test_a_service_for_all_addresses_takes_every_host_and_no_foreign_page(settings: Settings, ranker: Ranker) -> None:
    client = client_of(settings, ranker, loopback=False)
    assert status(client, Host="keyblock.shop.svc") == 200
    assert status(client, Host="keyblock.shop.svc", Origin=EVIL) == 403


def test_keys_protect_by_themselves(settings: Settings, ranker: Ranker) -> None:
    """A page that has a key may use it from anywhere; without one the answer is 401, whatever the origin."""
    client = client_of(keyed(settings), ranker, loopback=True)
    assert status(client, Origin=EVIL) == 401
    assert status(client, Origin=EVIL, Host="evil.example", **bearing("alice")) == 200


@pytest.mark.parametrize(("host", "loopback"), [("127.0.0.1", True), ("localhost", True), ("127.1.2.3", True), ("0.0.0.0", False)])
def test_loopback_is_what_the_sockets_say(host: str, loopback: bool) -> None:
    sockets = bind(host, 0)
    assert are_loopback(sockets) is loopback
    for one in sockets:
        one.close()


ATTACK = """<!doctype html><body><script>
const text = { method: "POST", mode: "no-cors", headers: { "content-type": "text/plain" }, body: BODY };
const plain = { method: "POST", body: BODY }, empty = { method: "POST", mode: "no-cors" };
const attempts = [["/rerank", text], ["/rerank", plain], ["/admin/reload", empty]];
Promise.allSettled(attempts.map(([path, options]) => fetch("TARGET" + path, options))).then(() => {
  const form = document.createElement("form"), frame = document.createElement("iframe");
  Object.assign(frame, { name: "frame", onload: () => document.title = "done" });
  Object.assign(form, { method: "POST", action: "TARGET/admin/reload", enctype: "text/plain", target: "frame" });
  document.body.append(frame, form);
  form.submit();
});
</script></body>"""


@contextmanager
def attacker(target: str) -> Iterator[str]:
    """The address of a page that acts on the target, at another port: another origin."""
    page = ATTACK.replace("TARGET", target).replace("BODY", json.dumps(BODY.decode())).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_chromium_on_a_page_of_another_origin_cannot_act(served: httpx.Client) -> None:
    """Its requests without a preflight reach the service: fetch() as no-cors and as text, and a form."""
    before = denied(served, "origin")
    with attacker(str(served.base_url).rstrip("/")) as page, chromium() as driver:
        driver.get(page)
        wait_for(lambda: driver.title == "done", pause=0.05)
    assert denied(served, "origin") == before + 4


def test_chromium_at_a_name_that_points_here_cannot_act(served: httpx.Client) -> None:
    """DNS rebinding: the browser takes the page's requests for those of one origin."""
    before = denied(served, "host")
    with chromium("--host-resolver-rules=MAP rebound.example 127.0.0.1") as driver:
        driver.get(f"http://rebound.example:{served.base_url.port}/")
        assert "is no name of this machine" in driver.page_source
    assert denied(served, "host") > before  # the page, and its icon
