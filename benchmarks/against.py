"""Compares the service with another commit of it: sends the same requests to both in turns, and prints the speed-up.

    python -m benchmarks.against COMMIT [--data DATA] [--rounds 20]

Both services run in the Python of this environment, each from its own tree and with its own embedded bundle. The other commit's
tree is a worktree, which is removed at the end. Both use the installed compiled part; an older tree that does not know it works
without it.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx

from tests.support.serving import REQUEST_SECONDS, Service
from tests.support.texts import Request, Source, collected, invented
from training.evaluate.tables import markdown

START = "from service.cli import main; main()"
WORDS = 2000
ROOT = Path(__file__).resolve().parent.parent


class Kind(NamedTuple):
    """A kind of request.

    Attributes:
        documents: the number of documents, of 2,000 words each.
        top_n: the number of results that it asks for; None: the request has no `top_n`.
        again: whether the same documents were sent before, so that they are prepared.
    """

    documents: int
    top_n: int | None = None
    again: bool = False


KINDS = {
    "100 new documents": Kind(100),
    "100 new documents, all of them asked for": Kind(100, 100),
    "the same, sent before": Kind(100, 100, again=True),
    "10 new documents": Kind(10),
    "1 new document": Kind(1),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print a table."""
    options = parser().parse_args(arguments)
    tokenizer = ROOT / "models" / "default" / "tokenizer.json"
    source = collected(options.data) if options.data else invented(tokenizer)
    with ExitStack() as running, tempfile.TemporaryDirectory() as logs:
        trees = [running.enter_context(worktree(options.commit)), ROOT]
        both = [running.enter_context(served(tree, options.threads, Path(logs) / f"{n}.log")) for n, tree in enumerate(trees)]
        clients = [running.enter_context(httpx.Client(base_url=one.url, timeout=REQUEST_SECONDS)) for one in both]
        rows = [[name, *measured(kind, source, clients, options)] for name, kind in KINDS.items()]
    print(markdown([["", "requests", f"seconds, {options.commit}", "seconds, now", "times as fast"], *rows]))


@contextmanager
def worktree(commit: str) -> Iterator[Path]:
    """The tree of a commit. Raises CalledProcessError for an unknown commit."""
    with tempfile.TemporaryDirectory() as place:
        tree = Path(place) / "tree"
        subprocess.run(["git", "-C", str(ROOT), "worktree", "add", "--detach", str(tree), commit], check=True, capture_output=True)
        try:
            yield tree
        finally:
            subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", str(tree)], check=True)


def served(tree: Path, threads: int, log: Path) -> Service:
    """The service of a tree."""
    return Service(threads, log, ("env", f"--chdir={tree}", f"PYTHONPATH={tree}", sys.executable, "-c", START))


def measured(kind: Kind, source: Source, clients: Sequence[httpx.Client], options: argparse.Namespace) -> list[str]:
    """Medians of the seconds, and of the ratios within a round. The services take turns to begin; the first round is left out."""
    rounds = []
    for turn in range(options.rounds + 1):
        request, order = source.request(kind.documents, options.words), [turn % 2, 1 - turn % 2]
        seconds = {number: seconds_of(kind, request, clients[number]) for number in order}
        rounds.append((seconds[0], seconds[1]))
    before, now = zip(*rounds[1:], strict=True)
    ratio = statistics.median(old / new for old, new in zip(before, now, strict=True))
    return [str(options.rounds), f"{statistics.median(before):.3f}", f"{statistics.median(now):.3f}", f"{ratio:.2f}"]


def seconds_of(kind: Kind, request: Request, client: httpx.Client) -> float:
    """Seconds until a service has answered. Raises HTTPStatusError for an error status."""
    body = {"query": request.query, "documents": request.documents} | ({"top_n": kind.top_n} if kind.top_n else {})
    content = json.dumps(body).encode()
    for _ in range(1 + kind.again):
        started = time.perf_counter()
        client.post("/rerank", content=content).raise_for_status()
        seconds = time.perf_counter() - started
    return seconds


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="benchmarks.against", description="The service beside itself at another commit.")
    made.add_argument("commit", help="what is measured beside this tree")
    made.add_argument("--data", type=Path, help="a collection whose documents are sent; made-up words where it is left out")
    made.add_argument("--rounds", type=int, default=20, help="requests of each kind to each of the two")
    made.add_argument("--threads", type=int, default=2, help="of each service")
    made.add_argument("--words", type=int, default=WORDS, help="of a document")
    return made


if __name__ == "__main__":
    main()
