"""The tables of docs/performance.md, from a record."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.performance.record import Record
from benchmarks.performance.targets import (
    Part,
    Row,
    best_peak,
    fastest,
    fastest_default,
    in_words,
    pace,
    verdicts,
)
from training.evaluate.tables import markdown

BEGIN = "<!-- what was measured: python -m benchmarks.performance --publish writes from here -->"
END = "<!-- to here -->"
STAGE_NAMES = {
    "transfer": "HTTP",
    "parse": "parse",
    "prepare": "prepare",
    "select": "select by model",
    "queue": "queue",
    "model": "model",
    "after": "rank and answer",
}
GIGA, MEBI = 1e9, 2**20


class PageError(ValueError):
    """The page has no place for the tables. The message is one line."""


def put(page: Path, text: str, mark: str = BEGIN) -> None:
    """Put text between the page's marks. Raises PageError if they are missing."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(mark)
    _, end, after = rest.partition(END)
    if not end:
        raise PageError(f"{page} has no place for the tables: a line {mark!r} and a line {END!r}")
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")


def report(record: Record, picture: str | None = None) -> str:
    """The whole report in Markdown: machine, verdicts, picture, and a section for each measured part."""
    sections = [machine_section(record), verdict_section(record)]
    if picture and "throughput" in record["parts"]:
        sections.append(f"![Documents a second of each system, and seconds by length]({picture})")
    sections += [write(record["parts"][name]) for name, write in SECTIONS.items() if name in record["parts"]]
    return "\n\n".join([*sections, footnotes(record)])


def machine_section(record: Record) -> str:
    """The machine and the runs."""
    machine, runs = record["machine"], [part["run"] for part in record["parts"].values()]
    bf16 = "no bf16 in hardware" if machine["bf16"] == "none" else machine["bf16"]
    lines = [f"{machine['cpu']}, {bf16}, {machine['threads']} threads for every system, Python {machine['python']}."]
    by_command = {run["command"]: [other for other in runs if other["command"] == run["command"]] for run in runs}
    lines += [f"`{command}`: {command_line(command_runs)}." for command, command_runs in by_command.items()]
    texts = ", ".join(dict.fromkeys(run["texts"] for run in runs))
    lines.append(f"Texts: {texts}.")
    if quick := [name for name, part in record["parts"].items() if part["run"]["sizes"] != "full"]:
        lines.append(f"**Preliminary**, small sizes: {', '.join(quick)}.")
    return "\n\n".join(lines)


def command_line(runs: Sequence[Mapping[str, Any]]) -> str:
    """Commits and dates of a command's runs, and the machine's load at the start of the parts."""
    commits, dates = (", ".join(dict.fromkeys(run[key] for run in runs)) for key in ("commit", "date"))
    loads = [run["load"] for run in runs]
    return f"commit {commits}, {dates}, load {min(loads)} to {max(loads)} as its parts began"


def verdict_section(record: Record) -> str:
    """Each target with its figure and verdict."""
    rows = [["target", "bound", "measured", "verdict"]]
    for target, value in verdicts(record):
        bound = f"at {'most' if target.most else 'least'} {in_words(target.bound, target.unit)}"
        measured = ["not measured", ""] if value is None else [f"**{in_words(value, target.unit)}**", target.verdict(value)]
        rows.append([target.name, bound, *measured])
    return f"## Targets\n\n{markdown(rows)}"


def throughput_section(part: Part) -> str:
    """All systems on one request."""
    head = ["", "tokens", "arithmetic", "seconds (lowest to highest)", "documents/s", "x the limit"]
    default, best = fastest_default(part), fastest(part)
    compared = [("faster default", default), ("fastest peer", best)]
    rows = [[*head, *(f"over the {name}" for name, row in compared if row)]]
    for row in part["rows"]:
        ratios = [f"{pace(row) / pace(other):.2f}" for _, other in compared if other]
        rows.append([*throughput_cells(row, part), *ratios])
    named = [f"the {name} is {row['name']}" for name, row in compared if row]
    note = f"In this run {' and '.join(named)}. " if named else ""
    return (
        f"## {part['documents']} documents x {part['words']:,} words, one request, nothing seen before\n\n{markdown(rows)}\n\n"
        f"{note}{limit_note(part)}"
    )


def throughput_cells(row: Row, part: Part) -> list[str]:
    """The cells of a system's row."""
    seconds, peak = row["seconds"], best_peak(part)
    spread = f"{seconds['median']:.2f} ({seconds['low']:.2f} to {seconds['high']:.2f})"
    limit = f"{seconds['median'] * peak / row['operations']:.1f}" if peak else ""
    name = f"**{row['name']}**" if row["ours"] else row["name"] + (" (default)" if row["default"] else "")
    return [name, f"{row['sequence_tokens']:.0f}", row["precision"], spread, f"{pace(row):.1f}", limit]


def limit_note(part: Part) -> str:
    """A sentence that explains the limit."""
    rates = ", ".join(f"{way} {rate / GIGA:.0f}" for way, rate in part.get("peaks", {}).items())
    return f"The limit is the encoder's matrix products at the best rate of this run, GFLOP/s: {rates}." if rates else ""


def stages_section(part: Part) -> str:
    """KeyBlock's stages, cold and warm, and the tokenizers."""
    names = [name for name in STAGE_NAMES if any(name in row["stages"] for row in part["rows"])]
    rows = [["milliseconds", *(STAGE_NAMES[name] for name in names), "whole", "before the model", "model x its limit"]]
    for row in part["rows"]:
        cells = [f"{1000 * row['stages'].get(name, 0.0):.1f}" for name in (*names, "whole")]
        limit = f"{row['stages']['model'] * best_peak(part) / row['operations']:.1f}" if best_peak(part) else ""
        rows.append([f"{row['name']}, {row['seen']}", *cells, f"{row['share_before']:.1%}", limit])
    times = [f"{name} {1000 * s['median']:.0f}" for name, s in part["tokenizers"].items() if isinstance(s, Mapping)]
    beside = f"The peers' tokenizers alone, ms for such a request: {', '.join(times)}. " if times else ""
    sizes = f"{part['documents']} documents x {part['words']:,} words."
    return f"## Stage by stage\n\n{sizes}\n\n{markdown(rows)}\n\n{beside}{limit_note(part)}"


def grid_section(part: Part) -> str:
    """Documents a second by words, documents and system."""
    sizes = list(dict.fromkeys((row["words"], row["documents"]) for row in part["rows"]))
    names = list(dict.fromkeys(row["name"] for row in part["rows"]))
    cells = {(row["name"], row["words"], row["documents"]): grid_cell(row, best_peak(part)) for row in part["rows"]}
    rows = [["documents/s (x the limit)", *(f"{documents} x {words:,} words" for words, documents in sizes)]]
    rows += [[name, *(cells.get((name, *size), "") for size in sizes)] for name in names]
    return f"## Documents x words x token budget\n\n{markdown(rows)}"


def grid_cell(row: Row, peak: float) -> str:
    """Documents a second, and the ratio to the limit."""
    return f"{pace(row):.1f}" + (f" ({row['seconds']['median'] * peak / row['operations']:.1f})" if peak else "")


def concurrency_section(part: Part) -> str:
    """Documents a second by clients."""
    whole = part["documents_a_second"]["one batch"]["median"]
    rows = [["", "documents/s (lowest to highest)", "over one batch"]]
    for name, rate in part["documents_a_second"].items():
        rows.append([name, f"{rate['median']:.1f} ({rate['low']:.1f} to {rate['high']:.1f})", f"{rate['median'] / whole:.2f}"])
    sizes = f"Requests of {part['client_documents']} documents x {part['words']:,} words at the default budget"
    return f"## Many clients\n\n{sizes}; one batch is a single request of {part['clients']} times as many.\n\n{markdown(rows)}"


def memory_section(part: Part) -> str:
    """Resident memory after some and after many requests."""
    rows = [["", "resident MiB", "of that in the cache"]]
    rows.append(["at start", f"{part['resident_start'] / MEBI:.0f}", "0"])
    for when in ("first", "last"):
        resident, cached = part[f"resident_{when}"] / MEBI, part[f"cached_{when}"] / MEBI
        rows.append([f"after {part[when]:,} requests", f"{resident:.0f}", f"{cached:.1f}"])
    sentence = (
        f"Requests of {part['documents']} documents of 1 to {2 * part['words']:,} words at mixed budgets, every document new. The "
        f"cache of prepared documents is held to {part['cache_bytes'] / MEBI:.1f} MiB here, so that the first requests fill it; "
        "its default is 256 MiB."
    )
    return f"## Memory\n\n{sentence}\n\n{markdown(rows)}"


def start_section(part: Part) -> str:
    """Seconds to ready."""
    seconds = part["seconds"]
    spread = f"{seconds['median']:.2f} s ({seconds['low']:.2f} to {seconds['high']:.2f}, {seconds['turns']} starts)"
    what = "From `keyblock-serve` to 200 from `/health/ready`, every shape warmed up"
    return f"## Start\n\n{what}: {spread}; the first took {part['first']:.2f} s."


def length_section(part: Part) -> str:
    """Seconds by words."""
    rows = [["words a document", "seconds, cold, 512 tokens (lowest to highest)"]]
    for words, seconds in part["seconds"].items():
        rows.append([f"{int(words):,}", f"{seconds['median']:.2f} ({seconds['low']:.2f} to {seconds['high']:.2f})"])
    return f"## Longer documents\n\n{part['documents']} documents a request.\n\n{markdown(rows)}"


SECTIONS: dict[str, Callable[[Part], str]] = {
    "throughput": throughput_section,
    "stages": stages_section,
    "grid": grid_section,
    "concurrency": concurrency_section,
    "length": length_section,
    "memory": memory_section,
    "start": start_section,
}


def footnotes(record: Record) -> str:
    """The section on equal weights, versions and absent peers."""
    throughput: Mapping[str, Any] = record["parts"].get("throughput", {})
    return "\n\n".join(["## Weights, versions", *footnote_lines(record, throughput)])


def footnote_lines(record: Record, throughput: Mapping[str, Any]) -> Iterator[str]:
    """The section's paragraphs."""
    if parity := throughput.get("parity"):
        by_peer = ", ".join(f"{name} {difference:.4f}" for name, difference in parity.items())
        texts = "the paragraphs of `examples/request.json`"
        yield f"Largest difference of a logit from KeyBlock's ranker in fp32, on {texts}: {by_peer}."
    for name, found in record["versions"].items():
        yield f"{name}: {', '.join(f'{package} {version}'.strip() for package, version in found.items())}."
    absent = {name: why for part in record["parts"].values() for name, why in part.get("absent", {}).items()}
    yield "\n".join(f"- {name} is absent: {why}" for name, why in absent.items()) or "No peer that was asked for is absent."


def summary(record: Record) -> str:
    """The targets for a terminal, a line each."""
    lines = []
    for target, value in verdicts(record):
        figure = "not measured" if value is None else f"{in_words(value, target.unit)}, {target.verdict(value).replace('*', '')}"
        lines.append(f"{target.name}: {figure}")
    return "\n".join(lines)
