"""Checks that peers compute the same function: compares their logits with KeyBlock's ranker on the example request's paragraphs."""

import json
import math
from collections.abc import Sequence

import torch
from transformers import AutoTokenizer

from benchmarks.performance import LONGEST
from benchmarks.performance.bench import ROOT, Bench
from benchmarks.performance.peers import PeerError
from tests.support.texts import Request
from training.model.cross_encoder import CrossEncoder

EXAMPLE = ROOT / "examples" / "request.json"
LEAST = 1e-7  # a smaller relevance has no digits left


def example() -> Request:
    """A request with the example's query and the paragraphs of its documents."""
    content = json.loads(EXAMPLE.read_text(encoding="utf-8"))
    paragraphs = [p for document in content["documents"] for p in document["text"].split("\n\n") if p]
    return Request(content["query"], paragraphs, 0)


def reference(ranker: CrossEncoder, tokenizer: str, request: Request) -> list[float]:
    """The ranker's logits in fp32 for whole texts, truncated at the model's limit."""
    pairs = [(request.query, document) for document in request.documents]
    encoded = AutoTokenizer.from_pretrained(tokenizer)(
        *map(list, zip(*pairs, strict=True)), padding=True, truncation=True, max_length=LONGEST, return_tensors="pt"
    )
    with torch.no_grad():
        logits = ranker(encoded["input_ids"], encoded["token_type_ids"], encoded["attention_mask"])
    return [float(logit) for logit in logits]


def differences(bench: Bench) -> dict[str, float]:
    """The largest difference between two logits, by peer."""
    request, found = example(), {}
    wanted = reference(bench.ranker, str(bench.model), request)
    for peer, running in bench.peers().items():
        try:
            found[peer.name] = largest_difference(running.rank(request).scores, wanted)
        except PeerError as error:
            bench.drop(peer, error)
    return found


def largest_difference(relevances: Sequence[float], logits: Sequence[float]) -> float:
    """The largest difference between logits and those behind relevances, which are sigmoids."""
    if len(relevances) != len(logits):
        raise PeerError(f"it gave {len(relevances)} scores for {len(logits)} documents")
    return max(abs(logit_of(relevance) - logit) for relevance, logit in zip(relevances, logits, strict=True))


def logit_of(relevance: float) -> float:
    """The inverse of the sigmoid."""
    inside = min(max(relevance, LEAST), 1 - LEAST)
    return math.log(inside / (1 - inside))
