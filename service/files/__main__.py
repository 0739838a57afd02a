"""The process that reads files for `service.files.bounded`, each within the limits of memory and time. It writes no file."""

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from service.files.bounded import COMMAND, MEMORY
from service.files.kinds import MISSING, NotTextError

NICE = 10  # it gives way to whoever ranks


def bound() -> None:
    """Limit this process, as far as the system can."""
    os.nice(NICE)
    with suppress(ImportError):
        import resource

        for kind, limit in (("AS", MEMORY), ("FSIZE", 0), ("CORE", 0)):
            with suppress(ValueError, OSError):
                resource.setrlimit(getattr(resource, f"RLIMIT_{kind}"), (limit, limit))


def main() -> None:
    """Read files until stdin ends."""
    bound()
    for line in iter(sys.stdin.buffer.readline, b""):
        head = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, head["seconds"])  # either ends the process, whatever runs
        signal.alarm(head["wait"])
        content = sys.stdin.buffer.read(head["size"])
        sys.stdout.buffer.write(answer(content, head["name"], head["max_chars"]) + b"\n")
        sys.stdout.buffer.flush()
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        del content
        if held() > MEMORY // 2:
            os.execv(sys.executable, COMMAND)  # the next file has all memory again


def answer(content: bytes, name: str, max_chars: int | None) -> bytes:
    """The text of a file in JSON, or the reason why there is none. Raises MemoryError."""
    try:
        from service.files.extraction import extract

        found = extract(content, name)
        if max_chars is not None and len(found.text) > max_chars:
            raise NotTextError(f"has a text of {len(found.text)} characters; a document may have {max_chars}: take a part of it")
        return json.dumps(found._asdict()).encode()
    except NotTextError as error:
        return json.dumps(str(error)).encode()
    except ImportError as error:
        return json.dumps(f"is no plain text: {MISSING} ({error})").encode()


def held() -> int:
    """Bytes of this process's address space, which the limit is about; 0 if the system does not say."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    return 0


if __name__ == "__main__":
    main()
