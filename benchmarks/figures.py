"""Fills the measured figures into README.md and docs/, from the records and from what the embedded model answers today.

python -m benchmarks.figures            # writes them
python -m benchmarks.figures --check    # exit code 1, and a line for each that is stale
python -m benchmarks.figures --list     # each figure with its source; exit code 1 if one has none
python -m benchmarks.figures --measure DATA    # the quality table anew, into docs/results/beginning.json

A figure stands between `<!--NAME-->` and `<!--/-->`, in a sentence or on lines of its own. `figures` has the names.

A line with measured figures that are typed by hand ends with `<!--by_hand-->`; of the pages `MEASURED` each line with a decimal
number counts. The source of such a line is the command, the record or the page of lab/notes that its section, or else the
page's beginning, names.
"""

import argparse
import json
import math
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.harness import BUNDLE, ROOT
from benchmarks.performance.report import own, peers, seconds_of
from keyblock import Ranker
from keyblock.results import Ranking

RECORDS = ROOT / "docs" / "results"
MARKED = re.compile(r"(<!--([a-z0-9.-]+)-->)(.*?)(<!--/-->)", re.DOTALL)
NUMBER = re.compile(r"\d+\.\d+")
COMMENT = re.compile(r"<!--.*?-->")
BY_HAND = "<!--by_hand-->"
MEASURED = ("docs/results/faults.md", "docs/results/quality.md", "docs/results/speed.md")
DECIMAL = re.compile(r"(?<![\w.=])(?<!Python )(?<!SQuAD )\d*\.\d+(?![\w.]*[\w])")
SECTION = re.compile(r"^(?=##+ )", re.MULTILINE)
SOURCE = re.compile(
    r"`((?:python -m|pytest|make [a-z]+-|grep)[^`]+|docs/results/[^`]+)`"  # a command, or a record
    r"|^((?:python -m|make|keyblock-[a-z]+) [^#\n]*)"  # a command in a block of them
    r"|\]\([^)]*?((?:lab/notes|results)/[^)]+)\)",  # a page of notes or results
    re.MULTILINE,
)
CLOSE = 0.01  # how far a score of an example may be from the one shown: another machine's arithmetic rounds otherwise
COLLECTIONS = {
    "squad-far": ("no answer in the first 512 tokens", "test", 715),
    "squad-articles": ("Wikipedia articles", "test.small", 4343),
    "qmsum": ("transcripts of meetings", "test", 8958),
    "evidence": ("medical articles", "test", 3780),
}
"""What each collection has; its split in the quality table, and the median words of its documents."""


class Figure(NamedTuple):
    """A figure as the pages show it, and the file and key that it comes from."""

    text: str
    source: str


def figures() -> Mapping[str, Figure]:
    """All figures by name."""
    sources = {
        "docs/results/performance.json: parts.throughput, parts.length": speed,
        "docs/results/beginning.json: each collection": quality,
        "models/default/bundle.json: pipeline, quality.calibration": bundle,
        "models/default, which answers in fp32: examples/*.json and the texts in benchmarks/figures.py": examples,
    }
    return {name: Figure(text, source) for source, of in sources.items() for name, text in of()}


def speed() -> Iterator[tuple[str, str]]:
    """From the record of `make bench`."""
    parts = json.loads((RECORDS / "performance.json").read_text(encoding="utf-8"))["parts"]
    rows, (short, long) = parts["throughput"]["rows"], map(seconds_of, parts["length"]["rows"])
    ours = {tokens: own(rows, tokens) for tokens in (None, 128, 256, 512)}
    peer, best = min(peers(rows, default=True)), min(peers(rows, default=False))
    yield "seconds.default", f"{ours[None]:.2f}"
    yield "seconds.512", f"{ours[512]:.2f}"
    yield "seconds.peer", f"{peer:.1f}"
    yield "seconds.best-peer", f"{best:.2f}"
    yield "times.default", f"{peer / ours[None]:.0f}"
    yield "times.512", f"{peer / ours[512]:.1f}"
    rates = {row["tokens"]: row["documents/s"] for row in rows if row.get("tokens") and row["system"].startswith("KeyBlock")}
    head = "| tokens a document | documents a second of one replica | replicas for 100 documents a second | for 10,000 |"
    lines = [
        f"| {tokens} | {rate:.0f} | {_replicas(100, rate)} | {_replicas(10_000, rate)} |" for tokens, rate in sorted(rates.items())
    ]
    yield "replicas", "\n".join(["", head, "|---|---|---|---|", *lines, ""])
    yield "times.length", f"{long / short:.1f}"
    yield "times.best-peer", f"{best / ours[512]:.2f}"


def _replicas(wanted: float, rate: float) -> int:
    """As docs/run/size.md says: two at least, and room for traffic that swings."""
    return max(2, math.ceil(wanted / (rate * 0.7)))


def measure(data: Path) -> None:
    """Measure the embedded model on the blocks that it chooses, and on the first 512 tokens of each document."""
    record: dict[str, Any] = {"queries": 100, "depth": 20}
    size = ["--queries", "100", "--depth", "20"]
    cut = ["--pipeline", "{selector: {name: first}}", "--budget", "512", "--unfused"]
    for name, (_, split, words) in COLLECTIONS.items():
        given = ["--bundle", str(BUNDLE), "--name", "embedded", "--collection", str(data / name), "--split", split, *size, "--json"]
        found = []
        for options in ([], cut):
            with TemporaryDirectory() as out:
                command = ["keyblock-evaluate", *given, "--out", out, *options]
                found.append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)["systems"])
        served, first = (one["embedded"]["RR@10"] for one in found)
        record[name] = {"median_words": words, "bm25": found[0]["first stage"]["RR@10"], "cut": first, "served": served}
    (RECORDS / "beginning.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def quality() -> Iterator[tuple[str, str]]:
    """From docs/results/beginning.json: MRR@10 of BM25, of the model on each document's first 512 tokens, and as served."""
    record = json.loads((RECORDS / "beginning.json").read_text(encoding="utf-8"))
    rows = [
        f"| {words} | {median:,} words | {bm25:.2f} | {cut:.2f} | **{served:.2f}** |"
        for name, (words, *_) in COLLECTIONS.items()
        for median, bm25, cut, served in [(record[name][key] for key in ("median_words", "bm25", "cut", "served"))]
    ]
    head = "| MRR@10 | median length | BM25 | same model, first 512 tokens | KeyBlock |\n|---|---|---|---|---|"
    yield "quality", "\n".join(["", head, *rows, ""])


def bundle() -> Iterator[tuple[str, str]]:
    """From the manifest of the embedded bundle, as `/info` shows it."""
    manifest = json.loads((BUNDLE / "bundle.json").read_text(encoding="utf-8"))
    packing, calibration = manifest["pipeline"]["packing"], manifest["quality"]["calibration"]
    least, most = packing["budget_range"]
    yield "tokens", f"{packing['budget']}; {least} to {most} with `max_tokens_per_doc`"
    yield "threshold", f"{manifest['pipeline']['min_score']:.3f}"
    for name in ("precision", "recall", "refused"):
        yield f"threshold.{name}", f"{calibration['threshold'][name]:.2f}"
    for name, (words, *_) in COLLECTIONS.items():
        yield f"auroc.{name}", f"{calibration['answers'][name]['auroc']:.2f} ({words})"


def examples() -> Iterator[tuple[str, str]]:
    """What the embedded model answers, in fp32, which is alike on all CPUs."""
    request = json.loads((ROOT / "examples" / "request.json").read_text(encoding="utf-8"))
    with Ranker.open(BUNDLE, provider="cpu", precision="fp32") as ranker:
        lease = ranker.rank(request["query"], request["documents"])
        river = ranker.rank("Which river flows through Vienna?", RIVERS)
        spans = ranker.rank("When may a tenant end the lease early?", [REPAIRS], relevant_spans=True, max_spans=3)
        scripts = json.loads((ROOT / "examples" / "multilingual.json").read_text(encoding="utf-8"))
        rivers = ranker.rank(scripts["query"], scripts["documents"])
    for result in rivers:
        yield f"scripts.{result.id}", f"{result.relevance_score:.4f}"
        yield f"scripts.{result.id}.block", f"{(result.blocks or ())[0].score:.2f}"
    yield "lease", "\n```json\n[" + ",\n ".join(_shown(lease)) + "]\n```\n"
    yield "lease.first", f"\n```json\n{_shown(lease)[0]}\n```\n"
    yield "lease.score", f"{lease[0].relevance_score:.2f}"
    yield "river.score", f"{river[0].relevance_score:.2f}"
    yield "spans.score", f"{spans[0].relevance_score:.2f}"
    for place, span in enumerate(spans[0].relevant_spans or (), start=1):
        yield f"spans.{place}", f"{span.score:.2f}"


RIVERS: list[Any] = [
    "The Thames flows through London.",
    {"id": "danube", "title": "Danube", "text": "The Danube flows through Vienna, Bratislava and Budapest."},
]
REPAIRS = (
    "Small repairs are paid by the tenant. The lease runs for three years. "
    "After the first twelve months the tenant may end it early: two months of notice are enough."
)


def _shown(ranking: Ranking) -> list[str]:
    """The results, each with its first two blocks."""
    return [
        json.dumps({"index": result.index, "relevance_score": round(result.relevance_score, 4), "id": result.id})[:-1]
        + ', "blocks": ['
        + ", ".join(
            json.dumps({"start": block.start, "end": block.end, "score": round(block.score, 2)})
            for block in (result.blocks or ())[:2]
        )
        + ", ...]}"
        for result in ranking
    ]


def agree(shown: str, today: str) -> bool:
    """Whether two texts differ in nothing but the last digits of numbers."""
    if NUMBER.sub("", shown) != NUMBER.sub("", today):
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(today), strict=False)
    return all(abs(float(one) - float(other)) <= CLOSE for one, other in pairs)


def by_hand(page: Path) -> Iterator[tuple[int, str, str | None]]:
    """Each line with measured figures that are typed by hand: its number, its text and its source, None if the page names none."""
    all_count = str(page.relative_to(ROOT)) in MEASURED
    sections = SECTION.split(MARKED.sub(lambda found: "\n" * found[0].count("\n"), page.read_text(encoding="utf-8")))
    first = 1
    for section in sections:
        sources = [(section[: found.start()].count("\n"), found[found.lastindex or 0]) for found in SOURCE.finditer(section)]
        sources = sources or [(0, found[found.lastindex or 0]) for found in SOURCE.finditer(sections[0])]
        for place, line in enumerate(section.splitlines()):
            if BY_HAND in line or (all_count and DECIMAL.search(COMMENT.sub("", line))):
                nearest = min(sources, key=lambda source: abs(source[0] - place), default=None)
                yield first + place, COMMENT.sub("", line).strip(), nearest and " ".join(nearest[1].split())
        first += section.count("\n")


def listed(pages: list[Path], known: Mapping[str, Figure]) -> int:
    """Print each figure with its source. Returns the exit code: 1 if a figure has none."""
    missing = 0
    for page in pages:
        for _, name, _, _ in MARKED.findall(page.read_text(encoding="utf-8")):
            print(f"{page.relative_to(ROOT)}\t{name}\t{known[name].source}")
        for number, line, source in by_hand(page):
            print(f"{page.relative_to(ROOT)}:{number}\t{line}\t{source or 'NO SOURCE'}")
            missing += source is None
    return int(missing > 0)


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--list", action="store_true", help="print each figure with its source, and write nothing")
    parser.add_argument("--measure", type=Path, metavar="DATA", help="measure the quality table on the collections in DATA first")
    options = parser.parse_args()
    if options.measure:
        measure(options.measure)
    check, known, stale = options.check, figures(), []
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if options.list:
        return listed(pages, known)
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for _, name, shown, _ in MARKED.findall(text):
            if name not in known:
                raise SystemExit(f"{page.relative_to(ROOT)}: no figure is called {name!r}; there are {', '.join(known)}")
            if not agree(shown, known[name].text):
                stale.append(f"{page.relative_to(ROOT)}: {name}: {shown.strip()} is {known[name].text.strip()} today")
        if not check:
            page.write_text(MARKED.sub(lambda found: found[1] + known[found[2]].text + found[4], text), encoding="utf-8")
    if check:
        print(*stale, sep="\n", end="\n" * bool(stale))
    return int(check and bool(stale))


if __name__ == "__main__":
    raise SystemExit(main())
