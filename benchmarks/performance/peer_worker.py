"""Runs inside a peer's environment: loads the model as the peer's users do, then answers requests, one JSON line each.

    python peer_worker.py KIND MODEL THREADS

Reads {"query": ..., "documents": [...]} and answers {"seconds": ..., "scores": [...]}. It imports nothing of KeyBlock.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

Score = Callable[[str, Sequence[str]], list[float]]
"""Relevances, 0 to 1, of documents to a query."""

FLASHRANK_NAME, FLASHRANK_FILE = "ms-marco-MiniLM-L-12-v2", "flashrank-MiniLM-L-12-v2_Q.onnx"  # a name that FlashRank knows


def cross_encoder(model: Path, threads: int, **options: Any) -> Score:
    """sentence-transformers' CrossEncoder, called as in its documentation."""
    import torch
    from sentence_transformers import CrossEncoder

    torch.set_num_threads(threads)
    encoder = CrossEncoder(str(model), device="cpu", **options)

    def score(query: str, documents: Sequence[str]) -> list[float]:
        return [float(s) for s in encoder.predict([(query, document) for document in documents], show_progress_bar=False)]

    return score


def sessions(threads: int) -> Any:
    """ONNX Runtime's options with a number of threads. By default it uses all of the machine's cores, whatever the CPU quota is."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return options


def onnx(model: Path, threads: int) -> Score:
    """CrossEncoder on ONNX Runtime, which exports the model as it loads it."""
    options = {"session_options": sessions(threads), "provider": "CPUExecutionProvider"}
    return cross_encoder(model, threads, backend="onnx", model_kwargs=options)


def openvino(model: Path, threads: int, precision: str) -> Score:
    """CrossEncoder on OpenVINO, which converts the model as it loads it."""
    configuration = {"INFERENCE_NUM_THREADS": str(threads), "INFERENCE_PRECISION_HINT": precision}
    return cross_encoder(model, threads, backend="openvino", model_kwargs={"ov_config": configuration})


def flashrank(model: Path, threads: int) -> Score:
    """FlashRank on our weights, rounded to int8 like its own models. They lie where it expects a model that it knows by name."""
    import onnxruntime
    from flashrank import Ranker, RerankRequest
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from optimum.onnxruntime import ORTModelForSequenceClassification

    home = model.parent / "flashrank" / FLASHRANK_NAME
    home.mkdir(parents=True, exist_ok=True)
    ORTModelForSequenceClassification.from_pretrained(model, export=True).save_pretrained(home)
    for file in model.glob("*.json"):
        shutil.copyfile(file, home / file.name)
    quantize_dynamic(home / "model.onnx", home / FLASHRANK_FILE, weight_type=QuantType.QInt8, per_channel=True)
    ranker = Ranker(model_name=FLASHRANK_NAME, cache_dir=str(home.parent), log_level="ERROR")
    ranker.session = onnxruntime.InferenceSession(str(home / FLASHRANK_FILE), sessions(threads))  # it has no setting for threads

    def score(query: str, documents: Sequence[str]) -> list[float]:
        passages = [{"id": number, "text": text} for number, text in enumerate(documents)]
        ranked = ranker.rerank(RerankRequest(query=query, passages=passages))
        return [float(passage["score"]) for passage in sorted(ranked, key=lambda passage: passage["id"])]

    return score


KINDS: dict[str, Callable[[Path, int], Score]] = {
    "cross-encoder": cross_encoder,
    "cross-encoder-bf16": lambda model, threads: cross_encoder(model, threads, model_kwargs={"dtype": "bfloat16"}),
    "cross-encoder-onnx": onnx,
    "cross-encoder-openvino-f32": lambda model, threads: openvino(model, threads, "f32"),
    "cross-encoder-openvino-bf16": lambda model, threads: openvino(model, threads, "bf16"),
    "flashrank": flashrank,
}


def serve(lines: TextIO, answers: TextIO, kind: str, model: Path, threads: int) -> None:
    """Load the model, report that it is ready, then answer until the lines end."""
    score = KINDS[kind](model, threads)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in lines:
        request, started = json.loads(line), time.perf_counter()
        scores = score(request["query"], request["documents"])
        print(json.dumps({"seconds": time.perf_counter() - started, "scores": scores}), file=answers, flush=True)


if __name__ == "__main__":
    output = os.fdopen(os.dup(1), "w")  # what libraries print goes to the log beside the answers
    os.dup2(2, 1)
    serve(sys.stdin, output, sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
