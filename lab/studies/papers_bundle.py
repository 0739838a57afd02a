"""Makes models/keyb-bm25 of models/default: the system of the KeyB paper, with the embedded model's weights.

    python -m lab.studies.papers_bundle --data DATA

BM25 chooses blocks of at most 63 tokens, the model reads them in every document, and its own score decides: sigmoid(a logit + b),
where a and b are fitted on dev. The paper's model reads 512 tokens; these weights learned to read 128, and know little at 512
(lab/notes/papers.md). Files that are equal to those of models/default are links to them. DATA holds the collections.
"""

import argparse
import os
import tempfile
from pathlib import Path

from keyblock.bundle import Manifest, load_bundle, write_bundle
from keyblock.description import PipelineConfig
from training.data.collection import Collection
from training.evaluate.calibration.calibrate import Plan, calibrate, calibration_tables
from training.evaluate.calibration.systems import CalibratedBundle

ROOT = Path(__file__).resolve().parents[2]
DEFAULT, NAME = ROOT / "models" / "default", "keyb-bm25"
COLLECTIONS = (
    "squad-articles",
    "squad-far",
    "qmsum",
    "evidence",
    *(f"mix/{n}" for n in "business cloud medicine policies work".split()),
)
BUDGET = 128


def papers_manifest(default: Manifest) -> Manifest:
    """The manifest of the paper's system (KeyB section 4.1): what the embedded bundle adds to it is left out."""
    own = default.pipeline
    pipeline = PipelineConfig(
        analyzer=own.analyzer,
        segmenter={"name": "cogltx"},
        selector={"name": "bm25", "k1": 0.9, "b": 0.4},
        packing=own.packing.model_copy(update={"budget": BUDGET, "budget_range": (BUDGET, BUDGET)}),
        trained_on=own.trained_on,
    )
    provenance = {"weights": default.name, "made_by": "python -m lab.studies.papers_bundle"}
    return default.model_copy(update={"name": NAME, "pipeline": pipeline, "quality": {}, "provenance": provenance})


def link_equal_files(bundle: Path, other: Path) -> None:
    """Replace the files that another bundle has, too, by links to them."""
    theirs = load_bundle(other).manifest.files
    for name, entry in load_bundle(bundle).manifest.files.items():
        if theirs.get(name) == entry:
            (bundle / name).unlink()
            (bundle / name).symlink_to(os.path.relpath(other / name, bundle))


def main() -> None:
    """Write the bundle and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the directory of the collections")
    parser.add_argument("--out", type=Path, default=ROOT / "models" / NAME, help="where the bundle goes (%(default)s)")
    parser.add_argument("--queries", type=int, default=40, help="dev queries a collection")
    parser.add_argument("--depth", type=int, default=25, help="candidates a query")
    options = parser.parse_args()
    manifest = papers_manifest(load_bundle(DEFAULT).manifest)
    with tempfile.TemporaryDirectory() as folder:
        plain = write_bundle(Path(folder) / NAME, manifest, {name: DEFAULT / name for name in manifest.needed})
        plan = Plan(budgets=(BUDGET,), queries=options.queries, depth=options.depth, use=("logit",))
        collections = [Collection(options.data / name) for name in COLLECTIONS]
        print(calibration_tables(*calibrate(CalibratedBundle(plain.path, options.out), collections, plan)))
    link_equal_files(options.out, DEFAULT)


if __name__ == "__main__":
    main()
