"""Runs inside a peer's environment: loads the model as the peer's users do, then answers requests, one JSON line each.

    python peer_worker.py MODEL THREADS BACKEND

BACKEND is torch, or openvino, which computes in bf16. Reads {"query": ..., "documents": [...]} and answers {"seconds": ...,
"scores": [...]}. It imports nothing of KeyBlock.
"""

import json
import os
import sys
import time
from typing import Any, TextIO


def cross_encoder(model: str, threads: int, backend: str) -> Any:
    """sentence-transformers' CrossEncoder; OpenVINO converts the model as it loads it."""
    import torch
    from sentence_transformers import CrossEncoder

    torch.set_num_threads(threads)
    openvino = {"ov_config": {"INFERENCE_NUM_THREADS": str(threads), "INFERENCE_PRECISION_HINT": "bf16"}}
    return CrossEncoder(model, device="cpu", backend=backend, model_kwargs=openvino if backend == "openvino" else {})


def serve(lines: TextIO, answers: TextIO, encoder: Any) -> None:
    """Report that it is ready, then answer until the lines end."""
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in lines:
        request, started = json.loads(line), time.perf_counter()
        pairs = [(request["query"], document) for document in request["documents"]]
        scores = [float(score) for score in encoder.predict(pairs, show_progress_bar=False)]
        print(json.dumps({"seconds": time.perf_counter() - started, "scores": scores}), file=answers, flush=True)


if __name__ == "__main__":
    output = os.fdopen(os.dup(1), "w")  # what libraries print goes to the log beside the answers
    os.dup2(2, 1)
    serve(sys.stdin, output, cross_encoder(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
