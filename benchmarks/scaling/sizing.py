"""How many replicas for how many documents a second, from the throughput that was published last; their memory and bandwidth.

python -m benchmarks.scaling.sizing [--documents 10 1000 100000] [--data DATA/squad-articles]
"""

import argparse
import json
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from benchmarks.scaling.autoscaler import K8S, load
from benchmarks.scaling.stores import items, texts_of
from benchmarks.scaling.traffic import RECORD

SYSTEM = "KeyBlock, as it comes (128 tokens)"
BUSY = 0.7  # at most, as planned: what is left is for what traffic swings within a minute
STRAINED = 0.9  # at most, when something is lost
ZONES = 3
WORDS, SAMPLE = 2_000, 50


@dataclass(frozen=True)
class Size:
    """Replicas for so many documents a second in all, of which one replica does `one` at most."""

    documents: float
    one: float

    @property
    def replicas(self) -> int:
        """As many that none is too busy, even if one is lost; never fewer than two."""
        return max(2, ceil(self.documents / (self.one * BUSY)), ceil(self.documents / (self.one * STRAINED)) + 1)

    @property
    def over_zones(self) -> int:
        """As many that none is too busy if one of ZONES is lost; the same number in each zone."""
        left = ceil(self.documents / (self.one * STRAINED))
        each = max(1, ceil(left / (ZONES - 1)), ceil(self.replicas / ZONES))
        return each * ZONES

    def busy(self, lost: int = 0) -> float:
        """The share of the time in which replicas are busy, with so many of them lost."""
        return self.documents / (self.one * (self.replicas - lost))


def throughput(record: Path = RECORD) -> float:
    """Documents a second of one replica."""
    rows = json.loads(record.read_text(encoding="utf-8"))["parts"]["throughput"]["rows"]
    (row,) = (row for row in rows if row["name"] == SYSTEM)
    return float(row["documents"] / row["seconds"]["median"])


def gibibytes(quantity: str) -> float:
    """GiB of a quantity of memory in a manifest."""
    return float(quantity.removesuffix("Gi"))


def main(options: argparse.Namespace) -> None:
    """Print the table."""
    (container,) = load(K8S / "base" / "deployment.yaml")["spec"]["template"]["spec"]["containers"]
    limits, one = container["resources"]["limits"], throughput()
    text = sum(len(each.encode()) for each in texts_of(options.data, SAMPLE, WORDS)) / SAMPLE
    stored = sum(len(item.content) for item in items(SAMPLE, WORDS, options.data)[0]) / SAMPLE
    print(f"One replica does {one:.1f} documents a second.", end=" ")
    print(f"A document of {WORDS:,} words has {text:,.0f} bytes as text, {stored:,.0f} as stored.\n")
    print("| documents/s | replicas | busy | one lost | over 3 zones | CPUs | GiB, limits | Mbit/s as text | Mbit/s from a store |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for documents in options.documents:
        size = Size(documents, one)
        n, bits = size.replicas, 8e-6 * documents
        held = f"{n * int(limits['cpu']):,} | {n * gibibytes(limits['memory']):,.0f}"
        shares = f"{size.busy():.0%} | {size.busy(1):.0%} | {size.over_zones:,}"
        print(f"| {documents:,} | {n:,} | {shares} | {held} | {bits * text:,.0f} | {bits * stored:,.0f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, nargs="+", default=[10, 1_000, 100_000])
    parser.add_argument("--data", type=Path, help="a collection, whose longest documents are taken; random words without")
    main(parser.parse_args())
