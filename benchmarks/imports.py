"""Imports of models of real shapes with random weights: parity, pace and memory of each, and what serving it takes.

    python -m benchmarks.imports --families bert xlm-roberta-large [--work DIR] [--passage-tokens 256] [--pairs 24] [--words 1500]
        [--documents 3] [--in-process]

No checkpoint is downloaded: each is built from its configuration, of the size of a model that people use, with a small tokenizer.
It is imported in a process of its own, served by keyblock-serve, and asked over HTTP about long documents. The score of the
document that came first is then what transformers' model says of the passage that the answer names. --in-process asks a Ranker
instead: a service first runs all shapes of batches, which takes a large model many minutes on one thread.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from benchmarks.performance.service import Service

BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
SMALL = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
MODERN = {**BASE, "num_hidden_layers": 22, "intermediate_size": 1152, "local_attention": 128, "global_attn_every_n_layers": 3}
DECODER = {**LARGE, "num_hidden_layers": 28, "num_key_value_heads": 8, "intermediate_size": 3072, "head_dim": 128}
DEBERTA = {**BASE, "position_buckets": 256, "pooler_hidden_size": 768}


class Shape(NamedTuple):
    """A model's size.

    Attributes:
        like: whose size it is.
        family: of benchmarks.checkpoints.
        vocabulary: tokens that it has weights for; the tokenizer knows fewer.
        sizes: for its configuration.
    """

    like: str
    family: str
    vocabulary: int
    sizes: dict[str, Any]


SHAPES = {
    "bert": Shape("ms-marco-MiniLM-L6", "bert", 30_522, SMALL),
    "bert-base": Shape("bert-base", "bert", 30_522, BASE),
    "electra": Shape("ms-marco-electra-base", "electra", 30_522, {**BASE, "embedding_size": 768}),
    "distilbert": Shape("distilbert-base", "distilbert", 30_522, {"dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim": 3072}),
    "roberta": Shape("roberta-base", "roberta", 50_265, BASE),
    "xlm-roberta": Shape("bge-reranker-base", "xlm-roberta", 250_002, BASE),
    "xlm-roberta-large": Shape("bge-reranker-v2-m3", "xlm-roberta", 250_002, {**LARGE, "max_position_embeddings": 8194}),
    "mpnet": Shape("mpnet-base", "mpnet", 30_527, BASE),
    "deberta": Shape("mxbai-rerank-base-v1", "deberta", 128_100, DEBERTA),
    "modernbert": Shape("gte-reranker-modernbert-base", "modernbert-mean", 50_368, MODERN),
    "qwen3": Shape("Qwen3-Reranker-0.6B", "qwen3", 151_669, DECODER),
}
"""By the name that --families takes."""
THREADS, START_SECONDS = 1, 1800  # a large model's first runs take long
QUERY = "why do bridges fall"
SENTENCES = ("The river flooded the bridge. ", "Bread needs an hour in the oven. ", "A committee met to discuss the budget. ")

BUILD = """
import json, sys
from pathlib import Path
from benchmarks.checkpoints import save_checkpoint
family, folder, sizes = sys.argv[1:]
save_checkpoint(family, Path(folder), **json.loads(sizes))
"""
IMPORT = """
import resource, sys
from pathlib import Path
from export.importing import import_model
from export.options import ImportOptions
from keyblock.runtime.providers import Provider
source, out, tokens, pairs = sys.argv[1:]
options = ImportOptions(passage_tokens=int(tokens), pairs=int(pairs), provider=Provider.CPU)
import_model(source, Path(out), options)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
"""
"""As keyblock-import does, which refuses fewer than 384 pairs: of large models they take long."""
ASK = """
import json, resource, sys, time
from keyblock.ranker import Ranker
bundle, query, documents = json.load(sys.stdin)
began = time.perf_counter()
ranker = Ranker.open(bundle, provider="cpu", threads=1)
ready = time.perf_counter()
best = ranker.rank(query, documents, raw_scores=True)
seconds = time.perf_counter() - ready
block = best[0].blocks[0]
found = [best[0].index, best[0].relevance_score, block.start, block.end]
print(json.dumps([found, ready - began, seconds, best.total_tokens, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6]))
"""
SCORE = """
import json, sys
from export.checkpoint import read_checkpoint
from export.options import ImportOptions
source, query, passage = json.load(sys.stdin)
print(float(read_checkpoint(source, ImportOptions()).logits([(query, passage)])[0]))
"""


def run_python(code: str, *given: object, stdin: str = "") -> str:
    """The last line that this code prints in a Python process of its own, given arguments and standard input."""
    command = [sys.executable, "-c", code, *map(str, given)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, input=stdin).stdout
    return output.strip().rpartition("\n")[2]


class Answer(NamedTuple):
    """The best document of a bundle's answer, and what the answer took.

    Attributes:
        index: of the best document.
        score: its logit.
        start, end: of its best passage.
        ready: seconds until requests could be answered.
        seconds: of the answer.
        tokens: read for the answer.
        peak: memory in GB.
    """

    index: int
    score: float
    start: int
    end: int
    ready: float
    seconds: float
    tokens: int
    peak: float


def built(family: str, work: Path) -> Path:
    """The checkpoint of that name."""
    shape, source = SHAPES[family], work / family
    if not source.exists():
        run_python(BUILD, shape.family, source, json.dumps({**shape.sizes, "vocab_size": shape.vocabulary}))
    return source


def imported(source: Path, out: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Import a checkpoint; what its certificate says, and what it took."""
    shutil.rmtree(out, ignore_errors=True)
    started = time.perf_counter()
    peak = float(run_python(IMPORT, source, out, given.passage_tokens, given.pairs))
    seconds = time.perf_counter() - started
    manifest = json.loads((out / "bundle.json").read_text(encoding="utf-8"))
    quality = manifest["quality"]
    return {
        "fused": manifest["graph"]["fused"],
        "pairs": quality["certificate"]["logits"]["pairs"],
        "most tokens": quality["certificate"]["tokens_of_passages"]["most"],
        "largest difference": quality["certificate"]["logits"]["max"],
        "sequences/s": quality["import"]["pace"]["sequences_per_second"],
        "tokens": quality["import"]["pace"]["tokens"],
        "threads": quality["import"]["pace"]["threads"],
        "megabytes": round(sum(entry["bytes"] for entry in manifest["files"].values()) / 1e6),
        "import s": round(seconds),
        "import peak GB": round(peak, 1),
    }


def served(bundle: Path, documents: list[str], log: Path) -> Answer:
    """Ask keyblock-serve."""
    body = {"query": QUERY, "documents": documents, "raw_scores": True, "return_blocks": True}
    with Service(THREADS, log, bundle=bundle, provider="cpu", patience=START_SECONDS) as service:
        started = time.perf_counter()
        answer = httpx.post(f"{service.url}/rerank", json=body, timeout=START_SECONDS).raise_for_status().json()
        seconds = time.perf_counter() - started
        peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{service.process.pid}/status").read_text(encoding="utf-8"))
    best = answer["results"][0]
    place = best["blocks"][0]["start"], best["blocks"][0]["end"]
    tokens = answer["usage"]["total_tokens"]
    memory = int(peak[1]) / 1e6 if peak else 0.0
    return Answer(best["index"], best["relevance_score"], *place, service.start_seconds, seconds, tokens, memory)


def ranked(bundle: Path, documents: list[str]) -> Answer:
    """Ask a Ranker in a process of its own."""
    best, *cost = json.loads(run_python(ASK, stdin=json.dumps([str(bundle), QUERY, documents])))
    return Answer(*best, *cost)


def exact(source: Path, answer: Answer, documents: list[str]) -> dict[str, Any]:
    """What the answer took, and how far the best score is from what transformers' model says of the passage."""
    passage = documents[answer.index][answer.start : answer.end]
    logit = float(run_python(SCORE, stdin=json.dumps([str(source), QUERY, passage])))
    return {
        "ready after s": round(answer.ready, 1),
        "answer s": round(answer.seconds, 2),
        "answer tokens": answer.tokens,
        "answer's difference": abs(logit - answer.score),
        "served peak GB": round(answer.peak, 1),
    }


def main() -> None:
    """Print two JSON lines for each family: of its import, and of asking it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", choices=list(SHAPES), default=["bert"])
    parser.add_argument("--work", type=Path, help="keeps checkpoints and bundles here")
    parser.add_argument("--passage-tokens", type=int, default=256)
    parser.add_argument("--pairs", type=int, default=24, help="compared with transformers")
    parser.add_argument("--words", type=int, default=1500, help="of the documents that the bundle is asked about")
    parser.add_argument("--documents", type=int, choices=range(1, len(SENTENCES) + 1), default=len(SENTENCES))
    parser.add_argument("--in-process", action="store_true", help="ask a Ranker, not a service")
    given = parser.parse_args()
    documents = [(sentence * given.words)[: 6 * given.words] for sentence in SENTENCES[: given.documents]]
    with tempfile.TemporaryDirectory() as folder:
        work = given.work or Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        for family in given.families:
            named = {"family": family, "shape": SHAPES[family].like}
            source, out = built(family, work), work / f"{family}.bundle"
            print(json.dumps(named | imported(source, out, given)), flush=True)
            answer = ranked(out, documents) if given.in_process else served(out, documents, work / f"{family}.log")
            print(json.dumps(named | exact(source, answer, documents)), flush=True)


if __name__ == "__main__":
    main()
