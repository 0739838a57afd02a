"""A process that reads one file and cannot harm its caller: its memory and time are limited, and it writes no file.

The file comes on stdin, its name as the first argument, and the largest number of characters of its text as the second. The answer
goes to stdout: JSON, `{text, title, problem}`, or, with exit code REFUSED, one line with the reason why there is no text.
"""

import json
import sys
from contextlib import suppress

MEMORY = 2 * 2**30  # bytes
SECONDS = 30  # of a CPU
REFUSED = 3


def bound() -> None:
    """Limit this process, as far as the system can."""
    with suppress(ImportError):
        import resource

        for kind, limit in (("AS", MEMORY), ("CPU", SECONDS), ("FSIZE", 0), ("CORE", 0)):
            with suppress(ValueError, OSError):
                resource.setrlimit(getattr(resource, f"RLIMIT_{kind}"), (limit, limit))


def main(name: str, max_chars: int) -> int:
    """Read the file. Returns the exit code."""
    bound()
    from service.files.kinds import MISSING, NotTextError

    try:
        from service.files.extraction import extract
    except ImportError as error:
        return refuse(f"is no plain text: {MISSING} ({error})")
    try:
        found = extract(sys.stdin.buffer.read(), name)
        if len(found.text) > max_chars:
            raise NotTextError(f"has a text of {len(found.text)} characters; a document may have {max_chars}: take a part of it")
    except NotTextError as error:
        return refuse(str(error))
    answer = {"text": found.text, "title": found.title, "problem": found.problem}
    sys.stdout.buffer.write(json.dumps(answer).encode())
    return 0


def refuse(reason: str) -> int:
    """Write the reason why there is no text. Returns the exit code."""
    sys.stdout.buffer.write(reason.encode())
    return REFUSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
