"""Compares the KeyBlock service with infinity-emb, sentence-transformers and FlashRank on the same weights and machine.

    python -m benchmarks.performance                     # everything, about 20 minutes on two cores
    python -m benchmarks.performance --quick             # the same with small sizes, to check that it works
    python -m benchmarks.performance --only throughput --peers infinity torch
    python -m benchmarks.performance --publish           # puts what the last runs measured into docs/results/speed.md

The first run installs each peer into its own environment under build/peers. Each measured part replaces that of earlier runs in
build/performance.json (with --quick: performance-quick.json). Each run is compared with the last published ratios. If a ratio is
worse by more than the tolerance, the run ends with 1 and publishes nothing, unless --accept is given.
"""

import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.performance.report import (
    PageError,
    RecordError,
    comparable,
    machine,
    merged,
    put,
    read_record,
    regressions,
    report,
    run_of,
    summary,
    write_record,
)
from tests.support.serving import ServiceError

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
PARTS = ("start", "throughput", "stages", "length", "concurrency", "memory")
PROGRAM = "benchmarks.performance"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, unless the command only publishes; compare; publish. Returns the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = parser().parse_args(given)
    options.latest = options.latest or BUILD / ("performance-quick.json" if options.quick else "performance.json")
    wanted = not options.publish or options.measure or options.only
    try:
        whole = not wanted or measure(options, shlex.join(["python", "-m", PROGRAM, *given]))
        return finish(options) if whole else 2
    except (RecordError, PageError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 2


def measure(options: argparse.Namespace, command: str) -> bool:
    """Measure each part, and write the record after each, so that a stop loses at most one part. Returns whether all succeeded."""
    import transformers  # and PyTorch, which take seconds

    from benchmarks.performance.bench import FULL, QUICK, Bench
    from benchmarks.performance.parts import PARTS as MEASURES
    from keyblock.runtime.cpus import default_threads

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    threads, sizes, failed = options.threads or default_threads(), QUICK if options.quick else FULL, []
    sizes = replace(sizes, memory=options.requests or sizes.memory, turns=options.turns or sizes.turns)
    with Bench(sizes, threads, options.home, options.data, tuple(options.peers)) as bench:
        for name in options.only or PARTS:
            print(f"== {name}", flush=True)
            run = run_of(command, sizes.name, options.data.name if options.data else "invented", ROOT)
            try:
                part = {name: {**MEASURES[name](bench), "run": run}}
            except ServiceError as error:
                failed.append(f"{PROGRAM}: {name} could not be measured: {error}")
                continue
            new = {"machine": machine(threads), "versions": bench.versions, "parts": part}
            write_record(options.latest, merged(read_record(options.latest), new))
            print(json.dumps(part), flush=True)
    print("\n".join(failed), file=sys.stderr, end="\n" if failed else "")
    return not failed


def finish(options: argparse.Namespace) -> int:
    """Print the targets, compare with the published record, publish. Returns 1 if a ratio is worse."""
    record, recorded = read_record(options.latest), read_record(options.recorded)
    if not record["parts"]:
        raise RecordError(f"{options.latest}: nothing is measured yet")
    print(summary(record))
    why = comparable(record, recorded)
    worse = [] if why else regressions(record, recorded, options.tolerance)
    print(f"ratios not compared: {why}" if why else "\n".join(["worse than recorded:", *worse] if worse else ["no ratio is worse"]))
    if options.publish and (not worse or options.accept):
        put(options.page, report(record))
        write_record(options.recorded, record)
    return int(bool(worse) and not options.accept)


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
    made.add_argument("--home", type=Path, default=BUILD / "peers", help="where environments, weights and logs go")
    made.add_argument("--latest", type=Path, help="the record of the last runs; those of --quick have their own")
    made.add_argument("--recorded", type=Path, default=ROOT / "docs/results/performance.json", help="the published record")
    made.add_argument("--page", type=Path, default=ROOT / "docs/results/speed.md", help="the page with a place for the tables")
    return made


if __name__ == "__main__":
    sys.exit(main())
