"""A process that reads one file, and cannot harm whoever asked it: bounded in memory and seconds, and it writes no file.

The file comes on stdin, its name as the first argument, and the most characters that its text may have as the second. On stdout
goes JSON, `{text, title, problem}`, or, with exit code REFUSED, one line that says why there is no text.
"""

import json
import sys
from contextlib import suppress

MEMORY = 2 * 2**30  # bytes
SECONDS = 30  # of a CPU
REFUSED = 3


def bound() -> None:
    """Bound this process, as far as the system knows how."""
    with suppress(ImportError):
        import resource

        for kind, most in (("AS", MEMORY), ("CPU", SECONDS), ("FSIZE", 0), ("CORE", 0)):
            with suppress(ValueError, OSError):
                resource.setrlimit(getattr(resource, f"RLIMIT_{kind}"), (most, most))


def main(name: str, most_chars: int) -> int:
    """Read the file; returns the exit code."""
    bound()
    from service.files.kinds import MISSING, NotTextError

    try:
        from service.files.extraction import extract
    except ImportError as error:
        return refused(f"is no plain text: {MISSING} ({error})")
    try:
        found = extract(sys.stdin.buffer.read(), name)
        if len(found.text) > most_chars:
            raise NotTextError(f"has a text of {len(found.text)} characters; a document may have {most_chars}: take a part of it")
    except NotTextError as error:
        return refused(str(error))
    answer = {"text": found.text, "title": found.title, "problem": found.problem}
    sys.stdout.buffer.write(json.dumps(answer).encode())
    return 0


def refused(why: str) -> int:
    """Say why there is no text; returns the exit code."""
    sys.stdout.buffer.write(why.encode())
    return REFUSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
