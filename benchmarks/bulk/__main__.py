"""The command line of benchmarks.bulk."""

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.bulk import __doc__ as about
from benchmarks.bulk import beside, stages
from benchmarks.bulk.reckon import Large
from benchmarks.bulk.tables import measured, reckoned
from benchmarks.performance.record import machine, run_of, write_record
from benchmarks.performance.report import put

ROOT = Path(__file__).resolve().parents[2]
RECORD, PAGE = ROOT / "docs" / "results" / "bulk.json", ROOT / "docs" / "bulk.md"
MARKS = {name: f"<!-- {name}: python -m benchmarks.bulk writes from here -->" for name in ("measured", "reckoned")}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and publish, or only compute a larger job. Returns the exit code."""
    options = parser().parse_args(arguments)
    large = Large(**{name: getattr(options, name) for name in Large._fields})
    if wrong := wrong_numbers(large):
        parser().error(wrong)
    if options.reckon:
        return _reckon(options.record, large)
    try:
        record = measure(options)
    except beside.DifferentScoresError as error:
        print(f"benchmarks.bulk: {error}", file=sys.stderr)
        return 1
    write_record(options.record, record)
    for name, text in (("measured", measured(record)), ("reckoned", reckoned(record, large))):
        print(text)
        put(options.page, text, MARKS[name])
    return 0


def wrong_numbers(large: Large) -> str:
    """The problem with the options of the larger job, in one line; empty if there is none."""
    for name, number in large._asdict().items():
        least = 0 if name in ("core_hour", "gpu_hour") else math.ulp(0)
        if not least <= number < math.inf:
            return f"--{name.replace('_', '-')} must be {'above 0' if least else '0 or more'}, not {number:g}"
    return ""


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All measurements, in the form of docs/results/bulk.json."""
    lists = beside.read_lists(options.data, options.queries)
    command = f"python -m benchmarks.bulk --data DATA/{options.data.name} --queries {options.queries} --rounds {options.rounds}"
    run = run_of(command, f"{options.queries} lists", options.data.name, ROOT) | {"rounds": options.rounds}
    with tempfile.TemporaryDirectory() as folder:
        return {
            "machine": machine(1),
            "run": run,
            "stages": stages.measure(lists, options.data, Path(folder)),
            "beside": beside.measure(lists, options.rounds, Path(folder)),
        }


def _reckon(path: Path, large: Large) -> int:
    if not path.exists():
        print(f"benchmarks.bulk: {path} is not there: measure first, with --data", file=sys.stderr)
        return 1
    print(reckoned(json.loads(path.read_text(encoding="utf-8")), large))
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser("benchmarks.bulk", description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = made.add_mutually_exclusive_group(required=True)
    what.add_argument("--data", type=Path, help="the directory of squad-far: measure all, and publish")
    what.add_argument("--reckon", action="store_true", help="print a larger job from what was measured")
    made.add_argument("--queries", type=int, default=20, help="lists that are ranked")
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--record", type=Path, default=RECORD)
    made.add_argument("--page", type=Path, default=PAGE)
    job = made.add_argument_group("the larger job", "Prices and the GPU are examples: give your own.")
    for name, default in Large._field_defaults.items():
        job.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default, metavar="NUMBER")
    return made


if __name__ == "__main__":
    sys.exit(main())
