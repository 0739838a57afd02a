"""Reads files in a process of its own, whose memory and time are bounded: small files may unpack to gigabytes, or take minutes.

The process reads any number of files. Each comes on stdin as a line of JSON, `{name, size, seconds, wait, max_chars}`, followed by
`size` bytes. The answer is a line on stdout: an object, the fields of `Extracted`, or a string, the reason why there is no text.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import IO, Self, cast

from service.files.kinds import Extracted, NotTextError, kind_of

COMMAND = (sys.executable, "-P", "-m", "service.files")  # -P: no module of the directory in which the command runs
MEMORY = 512 * 2**20  # bytes
SECONDS = 30  # of a processor, for each file
WAIT = 4 * SECONDS  # for each file by the clock: beside others, who go first, it takes longer
TOO_MUCH = f"takes more than {SECONDS} s or {MEMORY >> 20} MiB to read: give its text"
LONGEST_NAME = 200  # characters; only the end of a name counts


class BoundedReader:
    """Reads files one after the other. The first one that needs a process begins it, and the end of the `with` block ends it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    def read(self, content: bytes, name: str = "") -> Extracted:
        """The text of a file; plain text is decoded here. Raises NotTextError, also for a file that takes too much."""
        if kind_of(content, name) is None:
            from service.files.extraction import extract  # needs a library that a service without the extra `files` has not

            return extract(content, name)
        try:
            answer = self._answer(question(content, name))
        except BaseException:
            self._end()
            raise
        if not answer:
            self._end()
            raise NotTextError(TOO_MUCH)
        return extracted(answer)

    def _answer(self, asked: bytes) -> bytes:
        """The process's answer; empty if it ends without one."""
        if self._process is None:
            self._process = subprocess.Popen(
                COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment()
            )
        files, answers = cast(IO[bytes], self._process.stdin), cast(IO[bytes], self._process.stdout)
        try:
            files.write(asked)
            files.flush()
        except BrokenPipeError:
            return b""
        return answers.readline()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def question(content: bytes, name: str, max_chars: int | None = None) -> bytes:
    """A file as the process takes it; a text of more than `max_chars` characters is refused."""
    head = {"name": name[-LONGEST_NAME:], "size": len(content), "seconds": SECONDS, "wait": WAIT, "max_chars": max_chars}
    return b"%b\n%b" % (json.dumps(head).encode(), content)


def extracted(answer: bytes) -> Extracted:
    """The text in an answer of the process. Raises NotTextError."""
    found = json.loads(answer)
    if isinstance(found, str):
        raise NotTextError(found)
    return Extracted(**found)


def environment() -> dict[str, str]:
    """The environment of the process: without the service's settings, which hold secrets, and with the place of this package."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith("KEYBLOCK_")}
    places = (str(Path(__file__).parents[2]), kept.get("PYTHONPATH", ""))
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, places))}
