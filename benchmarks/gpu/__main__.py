"""Measures a GPU within half an hour. A new run continues where the last one stopped. Nothing is downloaded.

    python -m benchmarks.gpu --prepare --data DATA/squad-far   on a machine that can export: 45 MiB into build/gpu/prepared
    python -m benchmarks.gpu --minutes 25                      on the machine with the GPU, which gets that folder
    python -m benchmarks.gpu --publish                         puts the tables into docs/run/size.md
    python -m benchmarks.gpu --provider cpu --sizes small      tries the script itself; not to be published

Each part runs in its own process and writes a record, row by row. A part that fails, hangs or lacks its packages does not stop the
others. A new run measures what is missing.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.gpu.driver import Driver
from benchmarks.performance.report import PageError, cpu_name, put, run_of, write_record
from tests.support.serving import last_line
from training.evaluate.tables import markdown

ROOT = Path(__file__).resolve().parents[2]
BEGIN = "<!-- the GPU: python -m benchmarks.gpu --publish writes from here -->"
PARTS = {"device": 2, "parity": 4, "service": 6, "speed": 8}
"""The parts, most important first, and the minutes that each may take."""
MARGIN = 5.0  # seconds in which a part may finish its row after its time is up
Record = dict[str, Any]
"""part, device, sizes, why (empty if it is measured), run, rows."""


def path_of(options: argparse.Namespace, part: str) -> Path:
    """The record of a part."""
    return Path(options.home / "records" / f"{part}.json")


def read(options: argparse.Namespace, part: str) -> Record | None:
    """The record of a part; None without one."""
    path = path_of(options, part)
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def measure_all(options: argparse.Namespace, minutes: float) -> None:
    """Measure the parts that are not measured on this device, as far as they fit into the time; those that failed come last."""
    until, name = time.monotonic() + 60 * minutes, device_name(options)
    records = {part: read(options, part) for part in options.only or PARTS}
    setup = {"device": name, "sizes": options.sizes}
    due = [part for part, known in records.items() if known is None or known["why"] or not setup.items() <= known.items()]
    for part in sorted(due, key=lambda part: records[part] is not None):
        left = until - time.monotonic()
        if left < 60:
            print(f"{part}: left out, {max(left, 0):.0f} s were left", flush=True)
            continue
        run_part(options, part, min(60 * PARTS[part], left))


def device_name(options: argparse.Namespace) -> str:
    """The name of the device. Exits if there is no GPU, or nothing is prepared."""
    name = Driver().name if options.provider == "cuda" else cpu_name()
    if name is None:
        sys.exit(
            "gpu: NVIDIA's driver shows no GPU (or nvidia-ml-py is not installed); --provider cpu tries the script without one"
        )
    if not options.prepared.is_dir():
        sys.exit(f"gpu: {options.prepared} is not there: write it with --prepare on a machine that can export, and bring it along")
    return name


def run_part(options: argparse.Namespace, part: str, seconds: float) -> None:
    """Measure a part in its own process, and note how it ended."""
    passed_on = [f"--{name}={getattr(options, name)}" for name in ("provider", "sizes", "prepared", "home")]
    command = [sys.executable, "-m", "benchmarks.gpu", "--part", part, f"--seconds={seconds - MARGIN}", *passed_on]
    log = options.home / f"{part}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        code: int | str = process.wait(seconds + MARGIN)
    except subprocess.TimeoutExpired:
        code = "its time"
    try:
        os.killpg(process.pid, signal.SIGKILL)  # its service, too
    except ProcessLookupError:
        pass
    process.wait()
    record = read(options, part)
    if record is not None and code != 0:
        write_record(path_of(options, part), record | {"why": f"its process ended with {code}: {last_line(log)}"})
    said = f"{len(record['rows'])} rows {record['why']}" if record else f"ended with {code}: {last_line(log)}"
    print(f"{part}: {said}, its log is {log}", flush=True)


def one_part(options: argparse.Namespace) -> None:
    """Measure one part row by row. Called in a child process."""
    from benchmarks.gpu.parts import PARTS as MEASURES
    from benchmarks.gpu.parts import SIZES, Bench
    from keyblock.runtime.providers import Provider

    run = run_of(f"python -m benchmarks.gpu --provider {options.provider}", options.sizes, "invented", ROOT)
    record: Record = {"part": options.part, "device": device_name(options), "sizes": options.sizes, "run": run, "rows": []}
    bench = Bench(Provider(options.provider), SIZES[options.sizes], options.prepared, options.home)
    started = time.monotonic()
    for row in MEASURES[options.part](bench):
        record["rows"].append(row)
        print(row, flush=True)
        write_record(path_of(options, options.part), record | {"why": "it was stopped before it was done"})
        if time.monotonic() - started > options.seconds:
            return
    write_record(path_of(options, options.part), record | {"why": ""})


def report(records: Mapping[str, Record | None]) -> str:
    """All tables in Markdown. Exits unless all records are of one GPU."""
    known = [record for record in records.values() if record is not None and record["rows"]]
    devices = sorted({f"{record['device']}, {record['sizes']} sizes" for record in known})
    if len(devices) != 1 or any("--provider cpu" in record["run"]["command"] for record in known):
        sys.exit(f"gpu: a page is of one GPU, and the records are of {'; '.join(devices) or 'none'}")
    commits = ", ".join(sorted({record["run"]["commit"] for record in known}))
    parts = [f"Measured on {devices[0]}: `{known[0]['run']['command']}`, commit {commits}, {known[0]['run']['date']}."]
    for record in known:
        parts.append(f"## {record['part'].capitalize()}")
        parts += [table(list(rows)) for _, rows in groupby(record["rows"], key=lambda row: row["table"])]
    missing = [
        f"- {part}: {record['why'] if record else 'never tried'}" for part, record in records.items() if not record or record["why"]
    ]
    return "\n\n".join([*parts, "## Not measured, or not whole", "\n".join(missing) or "Nothing is missing."])


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows of one table: a column for each key that one of them has."""
    keys = [key for key in dict.fromkeys(key for row in rows for key in row) if key != "table"]
    return markdown([[rows[0]["table"], *keys], *([""] + [cell(row.get(key)) for key in keys] for row in rows)])


def cell(value: Any) -> str:
    """A value for a table."""
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return "" if value is None else str(value)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    home = Path("build/gpu")
    made = argparse.ArgumentParser("benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--prepare", action="store_true", help="only write the files for the machine with the GPU")
    made.add_argument("--data", type=Path, help="for --prepare: collection of the dev queries; by default a small sample")
    made.add_argument("--prepared", type=Path, default=home / "prepared", help="directory of what --prepare writes (%(default)s)")
    made.add_argument("--provider", choices=("cuda", "cpu"), default="cuda", help="cpu tries the script (%(default)s)")
    made.add_argument("--sizes", choices=("full", "small"), default="full", help="how much is measured (%(default)s)")
    made.add_argument("--minutes", type=float, default=25, help="time for all parts (%(default)s)")
    made.add_argument("--only", nargs="+", choices=list(PARTS), help="parts to measure")
    made.add_argument("--home", type=Path, default=home, help="directory of records and logs (%(default)s)")
    made.add_argument("--publish", action="store_true", help="only put the tables of the records into --page")
    made.add_argument("--page", type=Path, default=ROOT / "docs/run/size.md", help="a page with a marked place for the tables")
    made.add_argument("--part", help=argparse.SUPPRESS)
    made.add_argument("--seconds", type=float, default=3600, help=argparse.SUPPRESS)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Do what the command says."""
    options = parser().parse_args(arguments)
    options.home.mkdir(parents=True, exist_ok=True)
    if options.prepare:
        from benchmarks.gpu.parts import BUNDLE, SIZES
        from benchmarks.gpu.prepare import prepare

        prepare(options.prepared, BUNDLE, options.data, SIZES[options.sizes].sequences)
    elif options.publish:
        try:
            put(options.page, report({part: read(options, part) for part in PARTS}), BEGIN)
        except PageError as error:
            sys.exit(f"gpu: {error}")
    elif options.part:
        one_part(options)
    else:
        measure_all(options, options.minutes)


if __name__ == "__main__":
    main()
