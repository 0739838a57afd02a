"""A fork is as a process of its own: arguments, environment, folder, streams, exit codes, signals."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forks import Forks

PROGRAM = """
import json, os, signal, sys
COUNT = 0

def main():
    global COUNT
    COUNT += 1
    if sys.argv[1:] == ["die"]:
        os.kill(os.getpid(), signal.SIGKILL)
    said = [sys.argv[1:], os.environ.get("SAID"), "HOME" in os.environ, os.getcwd(), sys.stdin.read(), COUNT]
    print(json.dumps(said))
    print("on the side", file=sys.stderr)
    return len(sys.argv)

if __name__ == "__main__":
    sys.exit(main())
"""


@pytest.fixture
def forks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Forks]:
    (tmp_path / "a_program.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Forks("a_program") as forks:
        yield forks


def test_a_fork_does_what_the_program_does_however_often(forks: Forks, tmp_path: Path) -> None:
    environment = {"SAID": "so", "PATH": os.environ["PATH"]}
    for _ in range(2):
        found = forks.run("a_program", ["one", Path("two")], environment, tmp_path, b"gave\xc3\xa9")
        real = subprocess.run(
            [sys.executable, tmp_path / "a_program.py", "one", "two"],
            env=environment, cwd=tmp_path, input=b"gave\xc3\xa9", capture_output=True, check=False,
        )  # fmt: skip
        assert (found.returncode, found.stdout, found.stderr) == (real.returncode, real.stdout, real.stderr)
        assert json.loads(found.stdout) == [["one", "two"], "so", False, str(tmp_path), "gaveé", 1]


def test_a_signal_is_seen_and_the_next_fork_is_well(forks: Forks, tmp_path: Path) -> None:
    assert forks.run("a_program", ["die"], {}, tmp_path).returncode == -signal.SIGKILL
    assert forks.run("a_program", [], {}, tmp_path).returncode == 1
