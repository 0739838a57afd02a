"""Measures a GPU within half an hour. A new run continues where the last one stopped. Nothing is downloaded.

    cp -r models/default build/gpu/bundle                  or another bundle with a variant fp16
    python -m benchmarks.gpu --minutes 25                  on the machine with the GPU, which gets that folder
    python -m benchmarks.gpu --publish                     puts the tables into docs/run/size.md
    python -m benchmarks.gpu --provider cpu --sizes small  tries the script itself; not to be published

A part that fails does not stop the others. A new run measures what is missing.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

from benchmarks.gpu.parts import PARTS, SIZES, Bench, gpu_state
from benchmarks.harness import ROOT, cpu_name, measure, put, read_record, tables
from keyblock.runtime.providers import Provider

SAMPLE = ROOT / "export" / "sample"
MARK, PAGE = "<!-- the GPU: python -m benchmarks.gpu --publish writes from here -->", ROOT / "docs" / "run" / "size.md"


def main() -> int:
    """Do what the command says. Returns the exit code."""
    options = parser().parse_args()
    path = options.home / "record.json"
    if options.publish:
        record = read_record(path)
        if not record or record["machine"]["provider"] == "cpu":
            sys.exit("gpu: no record of a GPU is there to publish")
        put(PAGE, tables(record), MARK)
        return 0
    name = gpu_state().get("name") if options.provider == "cuda" else cpu_name()
    if name is None:
        sys.exit("gpu: NVIDIA's driver shows no GPU (or nvidia-ml-py is not installed); --provider cpu tries the script without")
    if not options.bundle.is_dir():
        sys.exit(
            f"gpu: {options.bundle} is not there: write it with keyblock-export where that can run (see --help), and bring it along"
        )
    bench = Bench(Provider(options.provider), SIZES[options.sizes], options.bundle, options.data, options.home)
    parts = {part: partial(PARTS[part], bench) for part in options.only or PARTS}
    machine = {"device": name, "provider": options.provider, "sizes": options.sizes}
    run = {"command": f"python -m benchmarks.gpu --provider {options.provider}", "sizes": options.sizes, "texts": "invented"}
    return int(not measure(parts, path, machine, run, minutes=options.minutes, again=False))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    home = Path("build/gpu")
    made = argparse.ArgumentParser("benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--bundle", type=Path, default=home / "bundle", help="the bundle with its fp16 graph (%(default)s)")
    made.add_argument(
        "--data", type=Path, default=SAMPLE, help="collection of the dev queries for parity; a small sample by default"
    )
    made.add_argument("--provider", choices=("cuda", "cpu"), default="cuda", help="cpu tries the script (%(default)s)")
    made.add_argument("--sizes", choices=tuple(SIZES), default="full", help="how much is measured (%(default)s)")
    made.add_argument("--minutes", type=float, default=25, help="time for all parts (%(default)s)")
    made.add_argument("--only", nargs="+", choices=list(PARTS), help="parts to measure")
    made.add_argument("--home", type=Path, default=home, help="directory of record, log and store (%(default)s)")
    made.add_argument("--publish", action="store_true", help="only put the tables of the record into docs/run/size.md")
    return made


if __name__ == "__main__":
    sys.exit(main())
