"""Compares the KeyBlock service with infinity-emb and sentence-transformers on the same weights and machine.

    python -m benchmarks.performance                     # everything, about 20 minutes on two cores
    python -m benchmarks.performance --quick             # the same with small sizes, to check that it works
    python -m benchmarks.performance --only throughput --peers infinity torch
    python -m benchmarks.performance --publish           # puts what the last runs measured into docs/results/speed.md

The first run installs each peer into its own environment under build/peers. Each measured part replaces that of earlier runs in
build/performance.json (with --quick: performance-quick.json). To compare with another commit in one run: benchmarks.against.
"""

import argparse
import os
import platform
import shlex
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.harness import ROOT, cpu_name, measure, put, read_record, write_record
from benchmarks.performance.report import report, targets
from keyblock.runtime.cpus import bf16_feature, default_threads

BUILD, PAGE = ROOT / "build", ROOT / "docs" / "results" / "speed.md"
MARK = "<!-- what was measured: python -m benchmarks.performance --publish writes from here -->"
PARTS = ("start", "throughput", "stages", "length", "concurrency", "stored")
PROGRAM = "benchmarks.performance"


def main() -> int:
    """Measure, unless the command only publishes; publish. Returns the exit code."""
    options = parser().parse_args()
    path = BUILD / ("performance-quick.json" if options.quick else "performance.json")
    wanted = options.measure or options.only or not options.publish
    whole = not wanted or measured(options, path, shlex.join(["python", "-m", PROGRAM, *sys.argv[1:]]))
    record = read_record(path)
    if not record:
        print(f"{PROGRAM}: nothing is measured yet", file=sys.stderr)
        return 2
    for name, bound, *found in targets(record):
        print(f"{name}, {bound}: {' '.join(found)}")
    if options.publish and whole:
        put(PAGE, report(record), MARK)
        write_record(PAGE.with_name("performance.json"), record)
    return 0 if whole else 2


def measured(options: argparse.Namespace, path: Path, command: str) -> bool:
    """Measure the parts. Returns whether all succeeded."""
    import transformers  # and PyTorch, which take seconds

    from benchmarks.performance.bench import FULL, QUICK, Bench
    from benchmarks.performance.parts import PARTS as MEASURES

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    threads, sizes = default_threads(), QUICK if options.quick else FULL
    sizes = replace(sizes, turns=options.turns or sizes.turns)
    machine = {"cpu": cpu_name(), "threads": threads, "bf16": bf16_feature() or "none", "python": platform.python_version()}
    run = {
        "command": command,
        "sizes": "quick" if options.quick else "full",
        "texts": options.data.name if options.data else "invented",
    }
    with Bench(sizes, threads, BUILD / "peers", options.data, tuple(options.peers)) as bench:
        return measure({name: partial(MEASURES[name], bench) for name in options.only or PARTS}, path, machine, run)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    from benchmarks.performance.peers import PEERS

    keys = [peer.key for peer in PEERS]
    made = argparse.ArgumentParser(PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--only", nargs="+", choices=PARTS, help="measure these parts")
    made.add_argument("--quick", action="store_true", help="small sizes")
    made.add_argument("--peers", nargs="*", choices=keys, default=keys, help="beside these; none after it: KeyBlock alone")
    made.add_argument("--data", type=Path, help="take texts from this collection, a directory; invented ones by default")
    made.add_argument("--turns", type=int, default=0, help="of each system")
    made.add_argument("--measure", action="store_true", help="with --publish: measure first")
    made.add_argument("--publish", action="store_true", help="put what was measured into the page, and record it")
    return made


if __name__ == "__main__":
    sys.exit(main())
