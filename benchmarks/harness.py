"""What benchmarks of the service share: sending from many clients, comparing scores, records of measurements, pages with tables."""

import asyncio
import json
import math
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import httpx

from keyblock.runtime.session import one_line
from tests.support.serving import REQUEST_SECONDS, ServiceError
from training.evaluate.tables import markdown

ROOT = Path(__file__).resolve().parent.parent
BUNDLE = ROOT / "models" / "default"
TOLERANCE = 1e-4  # of scores in fp32, in batches of other sizes
END = "<!-- to here -->"
Record = dict[str, Any]
"""`machine`, and `parts` by name, each with `run`, `rows` and `why` (empty if it is whole)."""
Row = Mapping[str, Any]
"""A row of a table, which its key `table` names."""
T = TypeVar("T")


class Spread(TypedDict):
    """Median and range of several turns."""

    median: float
    low: float
    high: float
    turns: int


def spread(values: Sequence[float]) -> Spread:
    """Median, lowest and highest of at least one value."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values), "turns": len(values)}


def in_turns(ways: Mapping[str, Callable[[int], T]], turns: int) -> dict[str, list[T]]:
    """Call each way once per turn, each turn beginning with the next, so that other load affects all alike. Results by way."""
    names = list(ways)
    found: dict[str, list[T]] = {name: [] for name in names}
    for turn in range(turns):
        first = turn % len(names) if names else 0
        for name in names[first:] + names[:first]:
            found[name].append(ways[name](turn))
    return found


def in_order(answer: Mapping[str, Any]) -> list[float]:
    """Scores in the order of the documents."""
    return [result["relevance_score"] for result in sorted(answer["results"], key=lambda result: result["index"])]


def largest_difference(answer: Mapping[str, Any], known: Sequence[float]) -> float:
    """The largest difference of a score from the known one; infinite where documents are missing."""
    scores = in_order(answer)
    return max(map(abs, map(float.__sub__, scores, known))) if len(scores) == len(known) else float("inf")


def send_all(url: str, bodies: Iterable[bytes], clients: int) -> list[float]:
    """Let clients send all bodies, each the next when its last is answered. The times of the answers, in order.

    Raises ServiceError for an error or a degraded answer.
    """
    given, ended = iter(bodies), []
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)

    async def one_after_the_other(client: httpx.AsyncClient) -> None:
        while (body := next(given, None)) is not None:
            try:
                response = await client.post("/rerank", content=body, headers={"content-type": "application/json"})
            except httpx.TransportError as error:
                raise ServiceError(f"a request was not answered ({error})") from None
            if response.status_code != 200 or b'"degraded":true' in response.content:
                raise ServiceError(f"a request had an error or a degraded answer ({response.status_code})")
            ended.append(time.perf_counter())

    async def all_clients() -> None:
        async with httpx.AsyncClient(base_url=url, timeout=REQUEST_SECONDS, limits=limits) as client:
            await asyncio.gather(*(one_after_the_other(client) for _ in range(clients)))

    asyncio.run(all_clients())
    return ended


def store(url: str, texts: Mapping[str, str]) -> list[dict[str, str]]:
    """Store texts by id. Returns the `documents` of a request for them. Raises ServiceError."""
    lines = [json.dumps({"id": one, "text": text}) for one, text in texts.items()]
    answer = httpx.put(f"{url}/documents", content="\n".join(lines), timeout=REQUEST_SECONDS)
    if answer.status_code != 200 or answer.json()["stored"] != len(texts):
        raise ServiceError(f"keyblock-serve stored not all documents: {answer.text[:300]}")
    return [{"id": one} for one in texts]


def cpu_name() -> str:
    """The name of the CPU."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def when() -> Record:
    """The commit, date and load of a measurement; no commit where there is no git."""
    git = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    try:
        commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        commit = ""
    return {"commit": commit, "date": f"{datetime.now(UTC):%Y-%m-%d}", "load": round(os.getloadavg()[0], 1)}


def measure(
    parts: Mapping[str, Callable[[], Iterable[Row]]],
    path: Path,
    machine: Record,
    run: Record,
    *,
    minutes: float = math.inf,
    again: bool = True,
) -> bool:
    """Measure parts, and write the record after each row, so that a stop or a failure of one part loses little.

    Args:
        parts: each yields rows.
        path: of the record. What it has of another machine is dropped, and a part that is measured replaces what it has of it.
        machine: what decides its speed.
        run: the command, its sizes and texts.
        minutes: after which the part that is measured ends at its next row.
        again: whether parts that the record has whole are measured, too.

    Returns whether all parts are whole.
    """
    record, until = read_record(path), time.monotonic() + 60 * minutes
    if record.get("machine") != machine:
        record = {"machine": machine, "parts": {}}
    for name, part in parts.items():
        known = record["parts"].get(name)
        if known and not known["why"] and not again:
            continue
        now: Record = {"run": run | when(), "rows": [], "why": "it was stopped before it was done"}
        record["parts"][name] = now
        try:
            for row in part():
                now["rows"].append(row)
                print(row, flush=True)
                write_record(path, record)
                if time.monotonic() > until:
                    raise TimeoutError("the time was over")
            now["why"] = ""
        except Exception as error:  # each library has its own exceptions
            now["why"] = one_line(error)
        write_record(path, record)
        print(f"{name}: {len(now['rows'])} rows {now['why']}", flush=True)
    return not any(record["parts"][name]["why"] for name in parts)


def tables(record: Record) -> str:
    """A record in Markdown: the machine, the runs, the tables of each part, and what is missing."""
    machine, parts = record["machine"], record["parts"]
    lines = [", ".join(f"{name} {value}" for name, value in machine.items()) + "."]
    runs: dict[str, list[Record]] = {}
    for part in parts.values():
        runs.setdefault(part["run"]["command"], []).append(part["run"])
    for command, own in runs.items():
        texts, sizes, commit, date = (", ".join(sorted({run[key] for run in own})) for key in ("texts", "sizes", "commit", "date"))
        loads = [run["load"] for run in own]
        about = f"{sizes} sizes, {texts} texts, commit {commit}, {date}, load {min(loads)} to {max(loads)} as its parts began"
        lines.append(f"`{command}`: {about}.")
    for name, part in parts.items():
        lines.append(f"## {name.capitalize()}")
        lines += [_table(list(rows)) for _, rows in groupby(part["rows"], key=lambda row: row["table"])]
        lines += [f"Not whole: {part['why']}."] if part["why"] else []
    return "\n\n".join(lines)


def _table(rows: Sequence[Row]) -> str:
    """Rows of one table: a column for each key that one of them has."""
    keys = [key for key in dict.fromkeys(key for row in rows for key in row) if key != "table"]
    return f"{rows[0]['table']}:\n\n{markdown([keys, *([cell(row.get(key)) for key in keys] for row in rows)])}"


def cell(value: Any) -> str:
    """A value for a table; a Spread as its median and range."""
    if isinstance(value, Mapping):
        return f"{cell(value['median'])} ({cell(value['low'])} to {cell(value['high'])})"
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def read_record(path: Path) -> Record:
    """The record in a file; empty without one."""
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def write_record(path: Path, record: Record) -> None:
    """Write a record, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def put(page: Path, text: str, mark: str) -> None:
    """Put text between a page's mark and END. Raises SystemExit if one is missing."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(mark)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"{page} has no place for the tables: a line {mark!r} and a line {END!r}")
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")
