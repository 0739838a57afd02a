"""python -m benchmarks.faults: see the package."""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx

import benchmarks.faults
from benchmarks.faults import broken
from benchmarks.faults.attacks import all_attacks
from benchmarks.faults.drill import NotHeldError
from benchmarks.harness import ROOT, put
from tests.support.serving import ServiceError

PAGE = ROOT / "docs" / "results" / "faults.md"
MARK = "<!-- what happened: python -m benchmarks.faults --publish writes from here -->"


def faults() -> Iterator[tuple[str, str, Callable[[Path], str]]]:
    """The name of each fault, what it is, and what does it."""
    for one in broken.FAULTS:
        yield one.__name__.replace("_", "-"), (one.__doc__ or "").strip(".\n "), one
    yield from all_attacks()


def main(options: argparse.Namespace) -> int:
    """Do each fault and print what happened; returns the exit code."""
    rows, bad = [], 0
    for name, what, fault in faults():
        if options.only and name not in options.only:
            continue
        held, happened = done(fault)
        bad += not held
        rows.append(f"| {what} | {happened} | `{name}` |")
        print(rows[-1], flush=True)
    if len(rows) < len(options.only):
        print("a name is of no fault; docs/results/faults.md has the names", file=sys.stderr)
        return 2
    if options.publish and not bad:
        put(PAGE, "\n".join(["| fault | what happened | |", "|---|---|---|", *rows]), MARK)
    return 1 if bad else 0


def done(fault: Callable[[Path], str]) -> tuple[bool, str]:
    """Whether everything held under a fault, and what happened."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            return True, fault(Path(folder))
        except (NotHeldError, ServiceError, httpx.HTTPError) as error:
            return False, f"**DID NOT HOLD** after {time.monotonic() - started:.0f} s: {error}"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        "python -m benchmarks.faults", description=benchmarks.faults.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--only", nargs="+", default=(), metavar="NAME", help="these faults")
    made.add_argument("--publish", action="store_true", help="put the table into docs/results/faults.md")
    return made


if __name__ == "__main__":
    sys.exit(main(parser().parse_args()))
