"""Compares the KeyBlock service with infinity-emb, sentence-transformers and FlashRank on the same weights and machine.

    python -m benchmarks.performance                     # everything, about 25 minutes on two cores
    python -m benchmarks.performance --quick             # the same with small sizes, to check that it works
    python -m benchmarks.performance --only throughput --peers infinity torch
    python -m benchmarks.performance --only memory --requests 10000
    python -m benchmarks.performance --publish           # puts what the last runs measured into docs/performance.md

The first run installs each peer into its own environment under build/peers. Each measured part replaces that of earlier runs in
build/performance.json (with --quick: performance-quick.json). Each run is compared with the last published ratios. If a ratio is
worse by more than the tolerance, the run ends with 1 and publishes nothing, unless --accept is given.
"""

import argparse
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.performance.record import Record, RecordError, machine, merged, read_record, run_of, write_record
from benchmarks.performance.report import PageError, put, report, summary
from benchmarks.performance.targets import comparable, regressions
from tests.support.serving import ServiceError

ROOT = Path(__file__).resolve().parents[2]
PAGE, PICTURE = ROOT / "docs" / "performance.md", "images/performance.png"
RECORDED = ROOT / "docs" / "results" / "performance.json"
BUILD = ROOT / "build"
HOME, LATEST, LATEST_QUICK = BUILD / "peers", BUILD / "performance.json", BUILD / "performance-quick.json"
PARTS = ("start", "throughput", "stages", "grid", "length", "concurrency", "memory")
PROGRAM = "benchmarks.performance"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, unless the command only publishes; compare; publish. Returns the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = parser().parse_args(given)
    options.latest = options.latest or (LATEST_QUICK if options.quick else LATEST)
    try:
        whole = not wanted(options) or measure(options, shlex.join(["python", "-m", PROGRAM, *given]))
        return finish(options) if whole else 2
    except (RecordError, PageError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 2


def wanted(options: argparse.Namespace) -> bool:
    """Whether the command measures anything."""
    return not options.publish or options.measure or bool(options.only)


def measure(options: argparse.Namespace, command: str) -> bool:
    """Measure each part, and write the record after each, so that a stop loses at most one part. Returns whether all succeeded."""
    from benchmarks.performance.bench import FULL, QUICK, Bench  # PyTorch and more
    from keyblock.runtime.cpus import default_threads

    silence()
    threads = options.threads or default_threads()
    sizes = QUICK if options.quick else FULL
    if options.requests:
        sizes = replace(sizes, memory_first=max(1, options.requests // 10), memory_last=options.requests)
    sizes = replace(sizes, turns=options.turns or sizes.turns)
    failed = []
    with Bench(sizes, threads, options.home, options.data, tuple(options.peers)) as bench:
        for name in options.only or PARTS:
            print(f"== {name}", flush=True)
            run = run_of(command, sizes.name, options.data.name if options.data else "invented", ROOT)
            try:
                part = {**measured(name)(bench), "run": run}
            except ServiceError as error:
                failed.append(f"{name} could not be measured: {error}")
                continue
            if "rows" in part:
                part["peaks"] = dict(bench.peaks or bench.measure_peaks())
            keep(options.latest, {"machine": machine(threads), "versions": bench.versions, "parts": {name: part}})
    print("\n".join(f"{PROGRAM}: {line}" for line in failed), file=sys.stderr, end="\n" if failed else "")
    return not failed


def keep(path: Path, new: Record) -> None:
    """Put a part into the record of the last runs, and print it."""
    write_record(path, merged(read_record(path), new))
    print(json.dumps(new["parts"]), flush=True)


def measured(name: str) -> Callable[[Any], dict[str, Any]]:
    """The function that measures a part."""
    from benchmarks.performance import concurrency, grid, length, memory, stages, start, throughput

    modules = {m.__name__.rpartition(".")[2]: m for m in (concurrency, grid, length, memory, stages, start, throughput)}
    found: Callable[[Any], dict[str, Any]] = modules[name].measure
    return found


def silence() -> None:
    """Switch off the libraries' progress bars and advice."""
    import transformers

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def finish(options: argparse.Namespace) -> int:
    """Print the targets, compare with the published record, publish. Returns 1 if a ratio is worse."""
    record, recorded = read_record(options.latest), read_record(options.recorded)
    if not record["parts"]:
        raise RecordError(f"{options.latest}: nothing is measured yet")
    print(summary(record))
    worse = compare(record, recorded, options.tolerance)
    if options.publish and (not worse or options.accept):
        publish(record, options)
    return int(bool(worse) and not options.accept)


def compare(record: Record, recorded: Record, tolerance: float) -> list[str]:
    """Say how the ratios stand to those recorded; the lines of those that are worse."""
    if why := comparable(record, recorded):
        print(f"ratios not compared: {why}")
        return []
    worse = regressions(record, recorded, tolerance)
    print("\n".join(["worse than recorded:", *worse]) if worse else "no ratio is worse than recorded")
    return worse


def publish(record: Record, options: argparse.Namespace) -> None:
    """Write the page's tables, its picture, and the record that later runs are compared with."""
    put(options.page, report(record, PICTURE))
    if "throughput" in record["parts"]:
        from benchmarks.performance.picture import draw

        path = options.page.parent / PICTURE
        path.parent.mkdir(exist_ok=True)
        draw(record).savefig(path, dpi=100)
    write_record(options.recorded, record)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    from benchmarks.performance.peers import PEERS

    keys = [peer.key for peer in PEERS]
    made = argparse.ArgumentParser(PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--only", nargs="+", choices=PARTS, help="measure these parts")
    made.add_argument("--quick", action="store_true", help="small sizes")
    made.add_argument("--peers", nargs="*", choices=keys, default=keys, help="beside these; none after it: KeyBlock alone")
    made.add_argument("--data", type=Path, help="take texts from this collection, a directory; invented ones by default")
    made.add_argument("--threads", type=int, default=0, help="for every system; 0 follows the container's CPU quota")
    made.add_argument("--turns", type=int, default=0, help="of each system")
    made.add_argument("--requests", type=int, default=0, help="of the part memory, which reads it after a tenth of them too")
    made.add_argument("--measure", action="store_true", help="with --publish: measure first")
    made.add_argument("--publish", action="store_true", help="put what was measured into the page, and record it")
    made.add_argument("--accept", action="store_true", help="publish worse ratios too")
    made.add_argument("--tolerance", type=float, default=0.15, help="share of a recorded ratio that a run may lose")
    made.add_argument("--home", type=Path, default=HOME, help="where environments, weights and logs go")
    made.add_argument("--latest", type=Path, help="the record of the last runs; those of --quick have their own")
    made.add_argument("--recorded", type=Path, default=RECORDED, help="the record that was published")
    made.add_argument("--page", type=Path, default=PAGE, help="the page with a place for the tables")
    return made


if __name__ == "__main__":
    sys.exit(main())
