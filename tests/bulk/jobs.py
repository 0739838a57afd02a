"""Small jobs for the tests: lists whose answers a person can check, and an engine without processes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bulk.options import Options
from bulk.stages import Job, Stage
from bulk.work import Layout

FILLER = "The meeting went on for a while, and nobody said anything of interest about the weather. "
RIVERS = {"Vienna": "Danube", "London": "Thames", "Paris": "Seine", "Rome": "Tiber"}


def sentence(city: str) -> str:
    return f"The {RIVERS[city]} flows through {city}."


def river_lists(n_lists: int = 4) -> list[dict[str, Any]]:
    """Queries for the river of a city; the answer stands deep in one of the documents, which all lists share."""
    texts = {city: f"{FILLER * 40}{sentence(city)} {FILLER * 20}" for city in RIVERS}
    documents = [{"docid": city.lower(), "text": text} for city, text in texts.items()]
    cities = list(RIVERS)
    return [
        {"qid": f"q{number}", "query": f"Which river flows through {cities[number % len(cities)]}?", "documents": documents}
        for number in range(n_lists)
    ]


def write_lines(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def made(work: Path, bundle: Path, rows: Sequence[Any], **options: Any) -> Options:
    """The options of a job over these rows."""
    given = {"provider": "cpu", "precision": "fp32", "workers": 1, "out": work / "out"} | options
    return Options(lists=(write_lines(work / "lists.jsonl", rows),), bundle=bundle, **given)


def command(options: Options, *program: str) -> list[str]:
    """The command of these options."""
    given = options.model_dump(include={"bundle", "out", "provider", "precision", "workers", "shard_pairs", "top_n"})
    flags = [part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    return [sys.executable, *program, "--lists", str(options.lists[0]), *flags]


def rankings(out: Path) -> list[dict[str, Any]]:
    """All rows, shard after shard."""
    return [row for path in shards(out) for row in pq.read_table(path).to_pylist()]


def shards(out: Path) -> list[Path]:
    return sorted(out.glob("rankings-*.parquet"))


def contents(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in shards(out)}


STOPPING = """
import os, signal, sys
from importlib import import_module
from bulk.cli import main
from bulk.stages import Score

engine = getattr(import_module(f"bulk.engines.{sys.argv[1]}"), f"{sys.argv[1].title()}Engine")

def try_once(self, stage, *rest, whole=engine.try_once):
    for number, shard in enumerate(whole(self, stage, *rest), 1):
        yield shard
        if stage is Score and number == 3:
            os.kill(os.getpid(), signal.SIGSTOP)

engine.try_once = try_once
sys.exit(main(sys.argv[2:]))
"""


def stopping(engine: str) -> list[str]:
    """Python's arguments for the command, which stops once three shards are ranked: what a test does then is never too late."""
    return ["-c", STOPPING, engine]


def stopped(process: "subprocess.Popen[str]") -> None:
    """Wait until it has stopped."""
    how = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    assert how is not None
    assert how.si_code == os.CLD_STOPPED, process.communicate()


class InThisProcess:
    """The obvious engine: one shard after the other."""

    def try_once(self, stage: type[Stage], job: Job, shards: Sequence[int]) -> Iterator[int]:
        at_work = stage(job)
        for shard in shards:
            at_work(shard)
            yield shard


def layout(tmp_path: Path) -> Layout:
    made = Layout(tmp_path)
    made.work.mkdir()
    return made
