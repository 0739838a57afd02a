"""The record of measurements, KeyBlock's targets with their verdicts, and the tables of docs/results/speed.md."""

import json
import os
import platform
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from keyblock.runtime.cpus import bf16_feature
from training.evaluate.tables import markdown

BEGIN = "<!-- what was measured: python -m benchmarks.performance --publish writes from here -->"
END = "<!-- to here -->"
EMPTY = {"machine": {}, "versions": {}, "parts": {}}
STAGES = ("transfer", "parse", "prepare", "select", "queue", "model", "after", "whole")
SLACK = 0.01  # change of a ratio that means nothing, however small the ratio is
MEBI = 2**20
Record = dict[str, Any]
"""`machine`, `versions`, and `parts` by name. A part has its own fields, and `run`: its date, commit, command and more."""
Part = Mapping[str, Any]
Row = Mapping[str, Any]


class RecordError(ValueError):
    """A file is not a record. The message is one line."""


class PageError(ValueError):
    """The page has no place for the tables. The message is one line."""


def cpu_name(root: Path = Path("/")) -> str:
    """The name of the CPU."""
    try:
        lines = (root / "proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown CPU"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown CPU")


def machine(threads: int) -> dict[str, Any]:
    """The properties that decide the machine's speed."""
    return {"cpu": cpu_name(), "threads": threads, "bf16": bf16_feature() or "none", "python": platform.python_version()}


def run_of(command: str, sizes: str, texts: str, root: Path) -> dict[str, Any]:
    """The commit, date, load, command, sizes and texts of a part's measurement."""
    git = ["git", "-C", str(root), "rev-parse", "--short", "HEAD"]
    try:
        commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # no git here
        commit = ""
    when = {"commit": commit, "date": f"{datetime.now(UTC):%Y-%m-%d}", "load": round(os.getloadavg()[0], 1)}
    return {"command": command, "sizes": sizes, "texts": texts, **when}


def read_record(path: Path) -> Record:
    """The record in a file, or an empty one without a file. Raises RecordError."""
    if not path.exists():
        return dict(EMPTY)
    try:
        record: Record = json.loads(path.read_text(encoding="utf-8"))
        if not record.keys() >= EMPTY.keys():
            raise ValueError("machine, versions or parts is missing")
    except (ValueError, AttributeError) as error:
        raise RecordError(f"{path}: no record of measurements, remove it to measure again ({error})") from None
    return record


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def merged(old: Record, new: Record) -> Record:
    """The parts of both records; a new part replaces the old one. Old parts of another machine are dropped."""
    if old["machine"] != new["machine"]:
        return new
    return {**new, "versions": old["versions"] | new["versions"], "parts": old["parts"] | new["parts"]}


def put(page: Path, text: str, mark: str = BEGIN) -> None:
    """Put text between the page's marks. Raises PageError if they are missing."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(mark)
    _, end, after = rest.partition(END)
    if not end:
        raise PageError(f"{page} has no place for the tables: a line {mark!r} and a line {END!r}")
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")


@dataclass(frozen=True)
class Target:
    """A bound on a figure of a part. `value` is None if the part does not have it; `most`: it is an upper bound; unit x, % or s."""

    name: str
    part: str
    bound: float
    value: Callable[[Part], float | None]
    most: bool = False
    unit: str = "x"

    def verdict(self, value: float) -> str:
        """Passed, or missed and by what share of the bound."""
        met = value <= self.bound if self.most else value >= self.bound
        return "passed" if met else f"**missed** by {abs(value / self.bound - 1):.0%}"


def in_words(value: float, unit: str) -> str:
    """A figure with its unit."""
    return {"%": f"{value:.1%}", "s": f"{value:.2f} s"}.get(unit, f"{value:.2f}")


def seconds_of(row: Row) -> float:
    """The median of a row's seconds."""
    return float(row["seconds"]["median"])


def fastest_default(part: Part) -> Row | None:
    """The fastest peer among those in their default set-up."""
    return min((row for row in part["rows"] if row["default"] and not row["ours"]), key=seconds_of, default=None)


def gain(tokens: int | None) -> Callable[[Part], float | None]:
    """How many times as fast as the fastest default peer KeyBlock is with that budget."""

    def value(part: Part) -> float | None:
        mine = next((row for row in part["rows"] if row["ours"] and row["tokens"] == tokens), None)
        theirs = fastest_default(part)
        return None if mine is None or theirs is None else seconds_of(theirs) / seconds_of(mine)

    return value


def before_model(seen: str) -> Callable[[Part], float | None]:
    """The share of a request's time before the model, at the longest budget."""
    return lambda part: next((float(row["share_before"]) for row in part["rows"] if row["tokens"] and row["seen"] == seen), None)


def lengthening(part: Part) -> float:
    """Seconds with the longest documents divided by those with the shortest."""
    seconds = {int(words): spread["median"] for words, spread in part["seconds"].items()}
    return float(seconds[max(seconds)] / seconds[min(seconds)])


def client_share(part: Part) -> float:
    """Documents a second of the most clients divided by those of one batch."""
    rates = part["documents_a_second"]
    return float(rates[f"{part['clients']} clients"]["median"] / rates["one batch"]["median"])


TARGETS = (
    Target("throughput at 512 tokens, over the faster peer's", "throughput", 3.2, gain(512)),
    Target("throughput at 256 tokens", "throughput", 6.0, gain(256)),
    Target("throughput at 128 tokens", "throughput", 12.0, gain(128)),
    Target("throughput at the default budget", "throughput", 6.0, gain(None)),
    Target("before the model, documents never seen", "stages", 0.05, before_model("cold"), most=True, unit="%"),
    Target("before the model, documents seen before", "stages", 0.01, before_model("warm"), most=True, unit="%"),
    Target("32 clients of 10 documents, over one batch", "concurrency", 0.9, client_share),
    Target(
        "memory after ten times the requests, over that before",
        "memory",
        1.05,
        lambda part: float(part["resident_last"] / part["resident_first"]),
        most=True,
    ),
    Target("start to ready", "start", 3.0, seconds_of, most=True, unit="s"),
    Target("20,000 words a document, over 2,000", "length", 1.5, lengthening, most=True),
)


def verdicts(record: Record) -> Sequence[tuple[Target, float | None]]:
    """Each target with its figure; None if it was not measured."""
    parts = record["parts"]
    return [(target, target.value(parts[target.part]) if target.part in parts else None) for target in TARGETS]


def regressions(new: Record, old: Record, tolerance: float) -> list[str]:
    """A line for each ratio that is worse than the recorded one by more than the tolerance, in parts with the same sizes and texts.

    Absolute seconds are not compared.
    """
    same = {
        name: part
        for name, part in new["parts"].items()
        if (before := old["parts"].get(name)) and all(part["run"][key] == before["run"][key] for key in ("sizes", "texts"))
    }
    lines = []
    for (target, now), (_, recorded) in zip(verdicts({**new, "parts": same}), verdicts(old), strict=True):
        if now is None or recorded is None or target.unit == "s":
            continue
        if (now - recorded if target.most else recorded - now) > recorded * tolerance + SLACK:
            lines.append(f"{target.name}: {now:.3f}, recorded {recorded:.3f}")
    return lines


def comparable(new: Record, old: Record) -> str:
    """Why the ratios of two records cannot be compared; empty if they can."""
    if not old["parts"]:
        return "nothing is recorded yet"
    different = [key for key in ("cpu", "bf16", "threads") if new["machine"].get(key) != old["machine"].get(key)]
    named = ", ".join(str(old["machine"].get(key)) for key in different)
    return f"what is recorded was measured on another machine ({named})" if different else ""


def summary(record: Record) -> str:
    """The targets for a terminal, a line each."""
    found = [(t, None if v is None else f"{in_words(v, t.unit)}, {t.verdict(v).replace('*', '')}") for t, v in verdicts(record)]
    return "\n".join(f"{target.name}: {figure or 'not measured'}" for target, figure in found)


def report(record: Record) -> str:
    """The whole report in Markdown: machine, verdicts, a section for each measured part, versions."""
    rows = [["target", "bound", "measured", "verdict"]]
    for target, value in verdicts(record):
        bound = f"at {'most' if target.most else 'least'} {in_words(target.bound, target.unit)}"
        measured = ["not measured", ""] if value is None else [f"**{in_words(value, target.unit)}**", target.verdict(value)]
        rows.append([target.name, bound, *measured])
    written = [write(record["parts"][name]) for name, write in SECTIONS.items() if name in record["parts"]]
    return "\n\n".join([machine_section(record), f"## Targets\n\n{markdown(rows)}", *written, *versions_section(record)])


def machine_section(record: Record) -> str:
    """The machine and the runs."""
    named, runs = record["machine"], [part["run"] for part in record["parts"].values()]
    bf16 = "no bf16 in hardware" if named["bf16"] == "none" else named["bf16"]
    lines = [f"{named['cpu']}, {bf16}, {named['threads']} threads for every system, Python {named['python']}."]
    for command in dict.fromkeys(run["command"] for run in runs):
        own = [run for run in runs if run["command"] == command]
        commits, dates = (", ".join(dict.fromkeys(run[key] for run in own)) for key in ("commit", "date"))
        loads = [run["load"] for run in own]
        lines.append(f"`{command}`: commit {commits}, {dates}, load {min(loads)} to {max(loads)} as its parts began.")
    lines.append(f"Texts: {', '.join(dict.fromkeys(run['texts'] for run in runs))}.")
    if quick := [name for name, part in record["parts"].items() if part["run"]["sizes"] != "full"]:
        lines.append(f"**Preliminary**, small sizes: {', '.join(quick)}.")
    return "\n\n".join(lines)


def ranged(spread: Mapping[str, float]) -> str:
    """A median with its range."""
    return f"{spread['median']:.2f} ({spread['low']:.2f} to {spread['high']:.2f})"


def throughput_section(part: Part) -> str:
    """All systems on one request."""
    best = fastest_default(part)
    rows = [["", "arithmetic", "seconds (lowest to highest)", "documents/s", "over the faster default peer"]]
    for row in part["rows"]:
        name = f"**{row['name']}**" if row["ours"] else row["name"] + (" (default)" if row["default"] else "")
        ratio = f"{seconds_of(best) / seconds_of(row):.2f}" if best else ""
        rows.append([name, row["precision"], ranged(row["seconds"]), f"{part['documents'] / seconds_of(row):.1f}", ratio])
    return f"## {part['documents']} documents x {part['words']:,} words, one request, nothing seen before\n\n{markdown(rows)}"


def stages_section(part: Part) -> str:
    """KeyBlock's stages, cold and warm."""
    names = [name for name in STAGES if any(name in row["stages"] for row in part["rows"])]
    rows = [["milliseconds", *names, "before the model"]]
    for row in part["rows"]:
        cells = [f"{1000 * row['stages'].get(name, 0.0):.1f}" for name in names]
        rows.append([f"{row['name']}, {row['seen']}", *cells, f"{row['share_before']:.1%}"])
    return f"## Stage by stage\n\n{part['documents']} documents x {part['words']:,} words.\n\n{markdown(rows)}"


def concurrency_section(part: Part) -> str:
    """Documents a second by clients."""
    rates = part["documents_a_second"]
    rows = [["", "documents/s (lowest to highest)", "over one batch"]]
    rows += [[name, ranged(rate), f"{rate['median'] / rates['one batch']['median']:.2f}"] for name, rate in rates.items()]
    what = f"Requests of 10 documents x {part['words']:,} words at the default budget; one batch is a single request of as many."
    return f"## Many clients\n\n{what}\n\n{markdown(rows)}"


def memory_section(part: Part) -> str:
    """Resident memory after some and after many requests."""
    rows = [["", "resident MiB", "of that in the cache"], ["at start", f"{part['resident_start'] / MEBI:.0f}", "0"]]
    for when in ("first", "last"):
        resident, cached = part[f"resident_{when}"] / MEBI, part[f"cached_{when}"] / MEBI
        rows.append([f"after {part[when]:,} requests", f"{resident:.0f}", f"{cached:.1f}"])
    cache = f"the cache of documents is held to {part['cache_bytes'] / MEBI:.1f} MiB"
    what = f"Requests of 10 new documents of 1 to 1,000 words at mixed budgets; {cache}."
    return f"## Memory\n\n{what}\n\n{markdown(rows)}"


def start_section(part: Part) -> str:
    """Seconds to ready."""
    what = "From `keyblock-serve` to 200 from `/health/ready`, every shape warmed up"
    return f"## Start\n\n{what}: {ranged(part['seconds'])} s; the first took {part['first']:.2f} s."


def length_section(part: Part) -> str:
    """Seconds by words."""
    rows = [["words a document", "seconds, cold, 512 tokens (lowest to highest)"]]
    rows += [[f"{int(words):,}", ranged(seconds)] for words, seconds in part["seconds"].items()]
    return f"## Longer documents\n\n{part['documents']} documents a request.\n\n{markdown(rows)}"


SECTIONS: dict[str, Callable[[Part], str]] = {
    "throughput": throughput_section,
    "stages": stages_section,
    "concurrency": concurrency_section,
    "length": length_section,
    "memory": memory_section,
    "start": start_section,
}


def versions_section(record: Record) -> Iterator[str]:
    """Equal weights, versions and absent peers."""
    part = record["parts"].get("throughput", {})
    yield "## Weights, versions"
    if parity := part.get("parity"):
        by_peer = ", ".join(f"{name} {difference:.4f}" for name, difference in parity.items())
        what = "Largest difference of a logit from KeyBlock's ranker in fp32, on the paragraphs of `examples/request.json`"
        yield f"{what}: {by_peer}."
    for name, found in record["versions"].items():
        yield f"{name}: {', '.join(f'{package} {version}'.strip() for package, version in found.items())}."
    absent = [f"- {name} is absent: {why[:200]}" for name, why in part.get("absent", {}).items()]
    yield "\n".join(absent) or "No peer that was asked for is absent."
