"""Programs as processes of their own, without the seconds that Python spends on imports: forks of one that has imported them."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

FORK = """
import importlib, json, os, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
for line in sys.stdin:
    order = json.loads(line)
    child = os.fork()
    if not child:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
os.chdir(order["folder"])
os.environ.clear()
os.environ.update(order["environment"])
for number, path in enumerate(order["streams"]):
    os.dup2(os.open(path, os.O_RDWR), number)
sys.stdin, sys.argv = open(0), [order["program"], *order["arguments"]]
sys.exit(importlib.import_module(order["program"]).main())
"""


class Forks:
    """Runs the function `main` of modules as programs, one at a time; a context manager.

    Args:
        modules: imported before the first fork: the programs, and what they import when they run.
    """

    def __init__(self, *modules: str) -> None:
        command = [sys.executable, "-c", FORK, *modules]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.communicate()

    def run(
        self, program: str, arguments: Sequence[str | Path], environment: Mapping[str, str], folder: Path, given: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        """What became of the program: its exit code, negative where a signal ended it, and what it wrote."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as place:
            streams = [Path(place, name) for name in ("stdin", "stdout", "stderr")]
            for stream in streams:
                stream.write_bytes(given if stream.stem == "stdin" else b"")
            order = {
                "program": program,
                "arguments": [str(argument) for argument in arguments],
                "environment": dict(environment),
                "folder": str(folder),
                "streams": [str(stream) for stream in streams],
            }
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            code = int(self._process.stdout.readline())
            return subprocess.CompletedProcess([program, *arguments], code, streams[1].read_bytes(), streams[2].read_bytes())
