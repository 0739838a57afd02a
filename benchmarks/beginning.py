"""The embedded model on the blocks that it chooses, and on the first 512 tokens of each document: the table of README.md.

python -m benchmarks.beginning --data DATA     # writes docs/results/beginning.json; then python -m benchmarks.figures
"""

import argparse
import json
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "docs" / "results" / "beginning.json"
MEDIAN_WORDS = {"squad-far": 715, "squad-articles": 4343, "qmsum": 8958, "evidence": 3780}  # of a document
SPLITS = {"squad-far": "test", "squad-articles": "test.small", "qmsum": "test", "evidence": "test"}
CUT = ["--pipeline", "{selector: {name: first}}", "--budget", "512", "--unfused"]


def measured(collection: Path, split: str, *options: str, queries: int, depth: int) -> dict[str, Any]:
    """What keyblock-evaluate reports of the embedded bundle."""
    size = ["--queries", str(queries), "--depth", str(depth)]
    with TemporaryDirectory() as out:
        command = ["keyblock-evaluate", "--bundle", str(ROOT / "models" / "default"), "--name", "embedded", "--json", "--out", out]
        on = ["--collection", str(collection), "--split", split]
        run = subprocess.run([*command, *on, *size, *options], capture_output=True, check=True, text=True)
    return dict(json.loads(run.stdout)["systems"])


def main() -> None:
    """Measure all collections and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the directory with the collections")
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--depth", type=int, default=20)
    options = parser.parse_args()
    record: dict[str, Any] = {"queries": options.queries, "depth": options.depth}
    for name, split in SPLITS.items():
        sizes = {"queries": options.queries, "depth": options.depth}
        served = measured(options.data / name, split, **sizes)
        cut = measured(options.data / name, split, *CUT, **sizes)
        record[name] = {
            "median_words": MEDIAN_WORDS[name],
            "bm25": served["first stage"]["RR@10"],
            "cut": cut["embedded"]["RR@10"],
            "served": served["embedded"]["RR@10"],
        }
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
