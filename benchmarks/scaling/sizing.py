"""Computes replicas, memory and bandwidth by documents a second, from the last published throughput.

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
BUSY = 0.7  # highest planned load: the rest is for traffic that varies within a minute
STRAINED = 0.9  # highest load after a loss
ZONES = 3
WORDS, SAMPLE = 2_000, 50


@dataclass(frozen=True)
class Size:
    """The number of replicas for `documents` documents a second. One replica does at most `one`."""

    documents: float
    one: float

    @property
    def replicas(self) -> int:
        """Enough replicas that none is too busy, even if one is lost; at least two."""
        return max(2, ceil(self.documents / (self.one * BUSY)), ceil(self.documents / (self.one * STRAINED)) + 1)

    @property
    def over_zones(self) -> int:
        """Enough replicas that none is too busy if one of ZONES zones is lost; the same number in each zone."""
        survivors = ceil(self.documents / (self.one * STRAINED))
        each = max(1, ceil(survivors / (ZONES - 1)), ceil(self.replicas / ZONES))
        return each * ZONES

    def busy(self, lost: int = 0) -> float:
        """The share of the time in which replicas are busy, if `lost` of them are lost."""
        return self.documents / (self.one * (self.replicas - lost))


def throughput(record: Path = RECORD) -> float:
    """Documents a second of one replica."""
    rows = json.loads(record.read_text(encoding="utf-8"))["parts"]["throughput"]["rows"]
    (row,) = (row for row in rows if row["name"] == SYSTEM)
    return float(row["documents"] / row["seconds"]["median"])


def gibibytes(quantity: str) -> float:
    """GiB of a manifest's quantity of memory."""
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
    parser.add_argument("--data", type=Path, help="collection of the documents, longest first; random words by default")
    main(parser.parse_args())
