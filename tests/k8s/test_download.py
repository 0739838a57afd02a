"""The init container that fetches a bundle, against a real web server."""

import hashlib
import http.server
import io
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.k8s.manifests import K8S

SCRIPT = K8S / "components" / "model-download" / "download.py"


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    made = tmp_path / "shelf"
    made.mkdir()
    return made


@pytest.fixture
def address(shelf: Path) -> Iterator[str]:
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(shelf))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/mine.tar.gz"
        server.shutdown()


def pack(shelf: Path, **files: bytes) -> str:
    """An archive on the shelf; its hash."""
    with tarfile.open(shelf / "mine.tar.gz", "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return hashlib.sha256((shelf / "mine.tar.gz").read_bytes()).hexdigest()


def fetch(url: str, digest: str, target: Path) -> subprocess.CompletedProcess[str]:
    target.mkdir(exist_ok=True)
    environment = {**os.environ, "BUNDLE_URL": url, "BUNDLE_SHA256": digest}
    return subprocess.run([sys.executable, SCRIPT, target], env=environment, capture_output=True, text=True, check=False)


def test_a_bundle_is_fetched_and_nothing_else_is_left(shelf: Path, address: str, tmp_path: Path) -> None:
    digest = pack(shelf, **{"bundle.json": b"{}", "model.onnx": b"graph"})
    done = fetch(address, digest.upper(), tmp_path / "bundle")
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.name: path.read_bytes() for path in (tmp_path / "bundle").iterdir()} == {
        "bundle.json": b"{}",
        "model.onnx": b"graph",
    }
    assert fetch(address, digest, tmp_path / "bundle").returncode == 0, "a container that starts again does it again"


@pytest.mark.parametrize(
    ("files", "wanted", "said"),
    [
        ({"bundle.json": b"{}"}, "0" * 64, "its SHA-256 is"),
        ({"model.onnx": b""}, None, "no bundle.json at its top"),
        ({"../../../out": b"", "bundle.json": b"{}"}, None, "outside the destination"),
    ],
)
def test_what_is_wrong_is_one_line(
    shelf: Path, address: str, tmp_path: Path, files: dict[str, bytes], wanted: str | None, said: str
) -> None:
    digest = pack(shelf, **files)
    done = fetch(address, wanted or digest, tmp_path / "bundle")
    assert done.returncode == 1
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_no_server_and_no_archive(shelf: Path, address: str, tmp_path: Path) -> None:
    assert "404" in fetch(address, "0" * 64, tmp_path / "bundle").stderr
    assert "neither https nor http" in fetch("file:///etc/passwd", "0" * 64, tmp_path / "bundle").stderr
    (shelf / "mine.tar.gz").write_bytes(b"no archive")
    digest = hashlib.sha256(b"no archive").hexdigest()
    done = fetch(address, digest, tmp_path / "bundle")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
