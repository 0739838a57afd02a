"""The Dockerfile keeps to hadolint and to what its comments say; its health check is run against a real service."""

import http.server
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from keyblock import __version__
from service.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
TARGETS = ("cpu", "gpu", "ray", "bulk", "train")


def stages() -> dict[str, tuple[str, str]]:
    """Each stage's base and instructions, by its name."""
    parts = re.split(r"^FROM (\S+) AS (\S+)\n", DOCKERFILE, flags=re.MULTILINE)[1:]
    return {name: (base, text) for base, name, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True)}


def instructions(target: str) -> str:
    """All that ends up in an image: its stage's, and those of the stages it is made from."""
    found, name = "", target
    while name in stages():
        name, text = stages()[name]
        found = text + found
    return found


def test_hadolint_finds_nothing() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("hadolint"), ROOT / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_runs_nothing_as_root_and_builds_nothing(target: str) -> None:
    found = instructions(target)
    assert re.findall(r"^USER (\S+)$", found, re.MULTILINE) == ["10001:10001"]
    assert re.search(r"^RUN", found, re.MULTILINE) is None, "what is installed comes from the stages before"
    assert f"COPY --from=build-{target} /opt/keyblock /opt/keyblock" in found
    assert f"ARG VERSION={__version__}\n" in found


def test_what_is_copied_is_let_through() -> None:
    """The context is what .dockerignore lets through, and the Dockerfile asks for no more."""
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line.startswith("!")}
    sources = {source for line in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE) for source in line.split()}
    assert [source for source in sources if not any(Path(source).is_relative_to(name) for name in let_through)] == []
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert [name for name in let_through if not any(Path(source).is_relative_to(name) for source in sources)] == []


def test_the_environment_is_made_of_settings() -> None:
    names = re.findall(r"\bKEYBLOCK_(\w+)=", DOCKERFILE)
    assert {"BUNDLE", "HOST", "PORT", "PROVIDER"} == set(names)
    assert {name.lower() for name in names} <= set(Settings.model_fields)


@contextmanager
def answering(status: int) -> Iterator[int]:
    """A server on a free port that answers /health/ready with this, and everything else with 404."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/health/ready" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_health_check_tells_ready_from_not(status: int, code: int) -> None:
    found = re.search(r"^HEALTHCHECK .*? CMD (\[.+\])$", instructions("cpu"), re.MULTILINE)
    assert found
    _, *arguments = json.loads(found[1])
    with answering(status) as port:
        environment = {**os.environ, "KEYBLOCK_PORT": str(port)}
        assert subprocess.run([sys.executable, *arguments], env=environment, check=False).returncode == code
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, check=False)
    assert done.returncode == 1, "nobody listens"
