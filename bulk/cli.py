"""keyblock-bulk: re-ranks millions of pairs. Exit codes: 0 done, 1 failed, 2 bad usage, 130 interrupted."""

import os
import sys
from collections.abc import Sequence

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported; workers inherit it

try:
    from bulk.errors import BulkError, one_line
    from bulk.job import rank_all
    from bulk.options import PROGRAM, parse
except ImportError as error:
    sys.exit(f"keyblock-bulk: install what it needs: pip install 'keyblock[bulk,cpu]', or gpu in place of cpu ({error})")

FAILED, BAD_USAGE, INTERRUPTED = 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Start or continue a job; print one line on stderr and return the exit code."""
    try:
        options = parse(sys.argv[1:] if arguments is None else arguments)
    except BulkError as error:
        return _report(one_line(error), BAD_USAGE)
    try:
        done = rank_all(options)
    except (ValueError, OSError) as error:
        return _report(one_line(error), FAILED)
    except KeyboardInterrupt:
        return _report("stopped; the same command goes on", INTERRUPTED)
    what = f"{done.pairs:,} pairs of {done.lists:,} queries and {done.documents:,} documents in {done.shards:,} shards"
    return _report(f"{options.out}: {what}, {done.new:,} of them new", 0)


def _report(line: str, code: int) -> int:
    print(f"{PROGRAM}: {line}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
