"""Imports of models of real shapes with random weights: parity, pace and memory of each, as a table.

    python -m benchmarks.imports --families bert xlm-roberta [--work DIR] [--passage-tokens 256]

No checkpoint is downloaded: each family is built from its configuration, of the size of a model that people use.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.checkpoints import save_checkpoint

BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
DECODER = {
    "hidden_size": 1024,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "intermediate_size": 3072,
}
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": (
        "ms-marco-MiniLM-L6",
        {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
    ),
    "electra": ("electra-base", {**BASE, "embedding_size": 768}),
    "distilbert": ("distilbert-base", {"dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim": 3072}),
    "roberta": ("roberta-base", BASE),
    "xlm-roberta": ("bge-reranker-base", BASE),
    "xlm-roberta-large": (
        "bge-reranker-v2-m3",
        {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
    ),
    "mpnet": ("mpnet-base", BASE),
    "deberta": ("mxbai-rerank-base-v1", {**BASE, "position_buckets": 256, "pooler_hidden_size": 768}),
    "modernbert-mean": (
        "gte-reranker-modernbert-base",
        {
            "hidden_size": 768,
            "num_hidden_layers": 22,
            "num_attention_heads": 12,
            "intermediate_size": 1152,
            "local_attention": 128,
            "global_attn_every_n_layers": 3,
        },
    ),
    "qwen3": ("Qwen3-Reranker-0.6B", {**DECODER, "head_dim": 128}),
}
"""By family: whose shape it is, and that shape. Vocabularies are small: they change what is stored, not what is computed."""
VOCABULARIES = {"xlm-roberta-large": 250_002}  # where the size of the file is the question


def measured(family: str, work: Path, passage_tokens: int) -> dict[str, Any]:
    """Build and import a family's checkpoint in processes of their own; what its certificate says, and what it took."""
    name, shape = SHAPES[family]
    source, out = work / family, work / f"{family}.bundle"
    if not source.exists():
        vocabulary = {"vocab_size": VOCABULARIES[family]} if family in VOCABULARIES else {}
        save_checkpoint(family.removesuffix("-large"), source, **shape, **vocabulary)
    shutil.rmtree(out, ignore_errors=True)
    started = time.perf_counter()
    command = [sys.executable, "-m", "export.import_cli", str(source), "--out", str(out), "--provider", "cpu"]
    subprocess.run([*command, "--passage-tokens", str(passage_tokens)], check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - started
    manifest = json.loads((out / "bundle.json").read_text(encoding="utf-8"))
    quality = manifest["quality"]
    return {
        "family": family,
        "shape": name,
        "fused": manifest["graph"]["fused"],
        "largest difference": quality["certificate"]["logits"]["max"],
        "sequences/s": quality["import"]["pace"]["sequences_per_second"],
        "tokens": quality["import"]["pace"]["tokens"],
        "megabytes": round(sum(entry["bytes"] for entry in manifest["files"].values()) / 1e6),
        "import seconds": round(seconds),
        "import peak GB": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6, 1),
        "served peak GB": served_peak(out),
    }


def served_peak(bundle: Path) -> float:
    """Memory at its highest of a process that opens the bundle and scores one request of ten long documents, in GB."""
    code = """
import resource, sys
from keyblock.bundle import load_bundle
from keyblock.runtime.model import GraphModel
from keyblock.scoring import score_documents
bundle = load_bundle(sys.argv[1])
pipeline, model = bundle.pipeline, GraphModel.open(bundle, "cpu")
documents = pipeline.prepare_documents(["The river flooded the bridge. " * 300] * 10)
score_documents(pipeline, pipeline.prepare_query("why do bridges fall"), documents, model)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
"""
    said = subprocess.run([sys.executable, "-c", code, str(bundle)], check=True, capture_output=True, text=True).stdout
    return round(float(said), 2)


def main() -> None:
    """Print a JSON line for each family."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", choices=list(SHAPES), default=["bert"])
    parser.add_argument("--work", type=Path, help="keeps checkpoints and bundles here")
    parser.add_argument("--passage-tokens", type=int, default=256)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for family in given.families:
            print(json.dumps(measured(family, given.work or Path(folder), given.passage_tokens)), flush=True)


if __name__ == "__main__":
    main()
