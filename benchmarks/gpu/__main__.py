"""Measures a GPU within half an hour. A new run continues where the last one stopped. Nothing is downloaded.

    python -m benchmarks.gpu --prepare build/gpu/prepared --data DATA/squad-far   on a machine that can export: a few MiB
    python -m benchmarks.gpu --prepared build/gpu/prepared --minutes 25           on the machine with the GPU
    python -m benchmarks.gpu --publish                                            puts the tables into docs/gpu.md
    python -m benchmarks.gpu --provider cpu --sizes small                         tries the script itself; not to be published

Each part runs in its own process and writes a record to RECORDS. A part that fails, hangs or lacks its packages does not stop the
other parts. A new run measures the missing parts, and those that failed come last.
"""

import argparse
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu.driver import Driver
from benchmarks.gpu.plan import PARTS, Part, measure_all
from benchmarks.gpu.record import ROOT, Setup, State, new_record, read, read_all, write
from benchmarks.performance.record import RecordError, cpu_name
from tests.support.serving import last_line

PROVIDERS = ("cuda", "cpu")
MARGIN = 5.0  # seconds in which a part may finish its row after its time is up


class Processes:
    """Measures each part in its own process. Implements `benchmarks.gpu.plan.Lab`."""

    def __init__(self, options: argparse.Namespace, setup: Setup) -> None:
        self._options, self._setup = options, setup

    def done(self, part: Part) -> bool:
        """See Lab. A record of another machine or other sizes does not count."""
        record = read(self._options.records, part.name)
        return record is not None and record["state"] == State.MEASURED and record["setup"] == self._setup

    def tried(self, part: Part) -> bool:
        """See Lab."""
        record = read(self._options.records, part.name)
        return record is not None and record["state"] in (State.FAILED, State.CUT_OFF)

    def missing(self, part: Part) -> Sequence[str]:
        """See Lab."""
        return [name for name in part.needs if importlib.util.find_spec(name) is None]

    def leave_out(self, part: Part, why: str) -> None:
        """See Lab. The rows of an earlier try are kept."""
        print(f"{part.name}: left out, {why}", flush=True)
        if not self.tried(part):
            write(self._options.records, new_record(part.name, self._setup, State.LEFT_OUT, why))

    def measure(self, part: Part, seconds: float) -> None:
        """See Lab."""
        passed_on = ("provider", "sizes", "prepared", "home", "records")
        arguments = [f"--{name}={getattr(self._options, name)}" for name in passed_on]
        command = [sys.executable, "-m", "benchmarks.gpu", "--part", part.name, f"--seconds={seconds - MARGIN}", *arguments]
        log = self._options.home / f"{part.name}.log"
        print(f"{part.name}: at most {seconds:.0f} s, its log is {log}", flush=True)
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code: int | str = process.wait(seconds + MARGIN)
        except subprocess.TimeoutExpired:
            code = "its time"
        _end(process)
        self._note(part, code, log)

    def _note(self, part: Part, code: int | str, log: Path) -> None:
        """Print how a part ended, and note it for a process that was killed."""
        record = read(self._options.records, part.name)
        if record is None or (code != 0 and record["state"] == State.CUT_OFF):
            record = record or new_record(part.name, self._setup, State.FAILED, "")
            record["why"] = f"its process ended with {code}: {last_line(log)}"
            write(self._options.records, record)
        print(f"{part.name}: {record['state']}{record['why'] and ', '}{record['why']}", flush=True)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kill the part's process group, which includes a service that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def main(options: argparse.Namespace) -> None:
    """Measure the chosen parts that fit into the time. Exits with one line if the provider or the prepared files are missing."""
    parts = [part for part in PARTS if part.name in (options.only or [one.name for one in PARTS])]
    device = Driver().name if options.provider == "cuda" else cpu_name()
    if device is None:
        sys.exit(
            "gpu: NVIDIA's driver shows no GPU (or nvidia-ml-py is not installed); --provider cpu tries the script without one"
        )
    if not options.prepared.is_dir():
        sys.exit(f"gpu: {options.prepared} is not there: write it with --prepare on a machine that can export, and bring it along")
    measure_all(
        parts, options.minutes, Processes(options, {"device": device, "provider": options.provider, "sizes": options.sizes})
    )
    known = read_all(options.records, [part.name for part in parts])
    print("; ".join(f"{name} {record['state']}" for name, record in known.items()))


def one_part(options: argparse.Namespace) -> None:
    """Measure one part. Called in a child process."""
    from benchmarks.gpu.bench import SIZES, Bench
    from benchmarks.gpu.work import measure_part
    from keyblock.runtime.providers import Provider

    bench = Bench(Provider(options.provider), SIZES[options.sizes], options.prepared, options.home)
    device = bench.driver.name if bench.on_gpu else cpu_name()
    setup: Setup = {"device": device or "", "provider": options.provider, "sizes": options.sizes}
    record = measure_part(bench, options.part, setup, options.records, options.seconds)
    sys.exit(record["state"] == State.FAILED)


def prepare(options: argparse.Namespace) -> None:
    """Write the files for the machine with the GPU. Exits with one line if an export fails."""
    from benchmarks.gpu.bench import BUNDLE, SIZES
    from benchmarks.gpu.prepare import prepare as write_prepared
    from export import ExportError

    try:
        write_prepared(options.prepare, BUNDLE, options.data, SIZES[options.sizes].sequences)
    except ExportError as error:
        sys.exit(f"gpu: {error}")


def publish(options: argparse.Namespace) -> None:
    """Put the tables into the page. Exits with one line if nothing is measured, or not on a GPU, or the page has no marks."""
    from benchmarks.gpu.tables import NothingToSayError, write_page
    from benchmarks.performance.report import PageError

    try:
        write_page(options.page, read_all(options.records, [part.name for part in PARTS]))
    except (NothingToSayError, PageError, RecordError) as error:
        sys.exit(f"gpu: {error}")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    home = Path("build/gpu")
    made = argparse.ArgumentParser("benchmarks.gpu", description="What a GPU does, part by part; resumable.")
    made.add_argument("--prepare", type=Path, metavar="DIR", help="only write the files for the machine with the GPU")
    made.add_argument("--data", type=Path, help="for --prepare: collection of the dev queries; by default a small sample")
    made.add_argument(
        "--prepared", type=Path, default=home / "prepared", metavar="DIR", help="directory that --prepare wrote (%(default)s)"
    )
    made.add_argument("--provider", choices=PROVIDERS, default="cuda", help="cpu tries the script (%(default)s)")
    made.add_argument("--sizes", choices=("full", "small"), default="full", help="how much is measured (%(default)s)")
    made.add_argument(
        "--minutes", type=float, default=25, help="time for all parts; one that does not fit is left out (%(default)s)"
    )
    made.add_argument(
        "--only", nargs="+", choices=[part.name for part in PARTS], metavar="PART", help="parts to measure, of: %(choices)s"
    )
    made.add_argument("--home", type=Path, default=home, help="directory of graphs and logs (%(default)s)")
    made.add_argument(
        "--records", type=Path, default=home / "records", help="directory of the records, a file per part (%(default)s)"
    )
    made.add_argument("--publish", action="store_true", help="only put the tables of the records into --page")
    made.add_argument("--page", type=Path, default=ROOT / "docs" / "gpu.md", help="a page with a marked place for the tables")
    made.add_argument("--part", help=argparse.SUPPRESS)
    made.add_argument("--seconds", type=float, default=3600, help=argparse.SUPPRESS)
    return made


if __name__ == "__main__":
    given = parser().parse_args()
    given.home.mkdir(parents=True, exist_ok=True)
    if given.prepare:
        prepare(given)
    elif given.publish:
        publish(given)
    elif given.part:
        one_part(given)
    else:
        try:
            main(given)
        except RecordError as error:
            sys.exit(f"gpu: {error}")
