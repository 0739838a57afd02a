"""Compares the service with another commit of it: sends the same requests to both in turns, and prints ratios.

    python -m benchmarks.against COMMIT [--data DATA] [--rounds 20] [--memory 5000] [--set second_look=false]

Both services run in the Python of this environment, each from its own tree, with its own compiled part and its own embedded
bundle. The other commit's tree is a worktree, which is removed at the end.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from benchmarks.harness import BUNDLE, ROOT, in_turns, store
from tests.support.serving import REQUEST_SECONDS, Service
from tests.support.texts import Request, Source, collected, invented
from training.evaluate.tables import markdown

START = "from service.cli import main; main()"
MEMORY_DOCUMENTS, MEMORY_WORDS, MEMORY_AT_FIRST = 10, 500, 200


class Kind(NamedTuple):
    """A kind of request.

    Attributes:
        documents: the number of documents.
        top_n: the number of results that it asks for; None: the request has no `top_n`.
        again: whether the same request was sent before, so that its documents are prepared.
        by_id: whether the documents were stored before, and are asked for by id.
    """

    documents: int
    top_n: int | None = None
    again: bool = False
    by_id: bool = False


KINDS = {
    "100 new documents": Kind(100),
    "100 new documents, all of them asked for": Kind(100, 100),
    "the same, sent before": Kind(100, 100, again=True),
    "100 documents by id": Kind(100, by_id=True),
    "10 new documents": Kind(10),
    "1 new document": Kind(1),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the tables."""
    options = parser().parse_args(arguments)
    source = collected(options.data) if options.data else invented(BUNDLE / "tokenizer.json")
    with ExitStack() as running, tempfile.TemporaryDirectory() as work:
        trees = [running.enter_context(worktree(options.commit)), ROOT]
        settings: list[dict[str, str]] = [{}, dict(options.set)]
        both = [
            running.enter_context(served(tree, options.threads, Path(work) / f"{n}", settings[n])) for n, tree in enumerate(trees)
        ]
        clients = [running.enter_context(httpx.Client(base_url=one.url, timeout=REQUEST_SECONDS)) for one in both]
        head, stages, rows = ["", "requests", f"seconds, {options.commit}", "seconds, now", "times as fast"], [], []
        for name in options.only or KINDS:
            taken, split = measured(KINDS[name], source, clients, options)
            rows.append([name, *taken])
            stages += [[f"{name}: {stage}", *times] for stage, times in split.items()]
        print(markdown([head, *rows]))
        print(f"\n{markdown([['stage', f'ms, {options.commit}', 'ms, now'], *stages])}")
        if options.memory:
            print(f"\n{memory(source, both, clients, options)}")


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


def served(tree: Path, threads: int, folder: Path, settings: Mapping[str, str]) -> Service:
    """The service of a tree, with a store of documents. Raises CalledProcessError if its compiled part cannot be built."""
    folder.mkdir()
    compiled = folder / "compiled"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "--target", str(compiled)]
    subprocess.run([*install, str(tree / "native")], check=True)
    command = ("env", f"--chdir={tree}", f"PYTHONPATH={compiled}:{tree}", sys.executable, "-c", START)
    return Service(threads, folder / "log", command, store=folder / "store", **settings)


def measured(
    kind: Kind, source: Source, clients: Sequence[httpx.Client], options: argparse.Namespace
) -> tuple[list[str], dict[str, list[str]]]:
    """Medians of the seconds, of the ratios within a round, and of both services' stages.

    The services take turns to begin; the first round is left out.
    """
    requests = [source.request(kind.documents, options.words) for _ in range(options.rounds + 1)]
    ways = {
        name: lambda turn, client=client: ask(kind, requests[turn], client, turn)
        for name, client in zip("an", clients, strict=True)
    }
    before, now = (found[1:] for found in in_turns(ways, options.rounds + 1).values())
    old, new = ([seconds for seconds, _ in found] for found in (before, now))
    ratio = statistics.median(one / other for one, other in zip(old, new, strict=True))
    names = dict.fromkeys(stage for found in (before, now) for _, stages in found for stage in stages)
    split = {
        name: [f"{statistics.median(stages.get(name, 0.0) for _, stages in found):.1f}" for found in (before, now)]
        for name in names
    }
    return [str(options.rounds), f"{statistics.median(old):.4f}", f"{statistics.median(new):.4f}", f"{ratio:.3f}"], split


def ask(kind: Kind, request: Request, client: httpx.Client, turn: int) -> tuple[float, Mapping[str, float]]:
    """Seconds until a service has answered, and its own stages in milliseconds. Raises HTTPStatusError for an error status."""
    documents: list[Any] = request.documents
    if kind.by_id:
        documents = store(str(client.base_url), {f"{turn}-{number}": text for number, text in enumerate(documents)})
    body = {"query": request.query, "documents": documents} | ({"top_n": kind.top_n} if kind.top_n else {})
    content = json.dumps(body).encode()
    for _ in range(1 + kind.again):
        started = time.perf_counter()
        answer = client.post("/rerank", content=content).raise_for_status()
        seconds = time.perf_counter() - started
    return seconds, answer.json()["meta"]["timings_ms"]


def memory(source: Source, both: Sequence[Service], clients: Sequence[httpx.Client], options: argparse.Namespace) -> str:
    """A table of resident MiB: after the requests above, after 200 varied ones, and after all of --memory."""
    rows = [["resident, MiB", options.commit, "now"], ["before", *(f"{one.resident() >> 20}" for one in both)]]
    for until, count in ((MEMORY_AT_FIRST, MEMORY_AT_FIRST), (options.memory, options.memory - MEMORY_AT_FIRST)):
        for request in islice(iter(lambda: source.request(MEMORY_DOCUMENTS, MEMORY_WORDS), None), max(count, 0)):
            for client in clients:
                client.post("/rerank", json={"query": request.query, "documents": request.documents}).raise_for_status()
        rows.append([f"after {until:,} requests of 10 new documents of 500 words", *(f"{one.resident() >> 20}" for one in both)])
    return markdown(rows)


def _setting(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="benchmarks.against", description="The service beside itself at another commit.")
    made.add_argument("commit", help="what is measured beside this tree")
    made.add_argument("--data", type=Path, help="a collection whose documents are sent; made-up words where it is left out")
    made.add_argument("--only", nargs="+", choices=list(KINDS), metavar="KIND", help="of: %(choices)s")
    made.add_argument("--rounds", type=int, default=20, help="requests of each kind to each of the two")
    made.add_argument("--threads", type=int, default=2, help="of each service")
    made.add_argument("--words", type=int, default=2000, help="of a document")
    made.add_argument("--set", type=_setting, action="append", default=[], metavar="NAME=VALUE", help="a setting of this tree")
    made.add_argument("--memory", type=int, default=0, help="requests after which memory is read; 0 for none")
    return made


if __name__ == "__main__":
    main()
