"""Runs inside a peer's environment: loads the model as the peer's users do, then answers requests, one JSON line each.

    python peer_worker.py KIND MODEL THREADS

Reads {"query": ..., "documents": [...]} and answers {"seconds": ..., "scores": [...]}. With "tokenize": true it only times the
tokenizer. It imports nothing of KeyBlock.
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
LENGTH, BATCH = 512, 32  # CrossEncoder's defaults for this model


def cross_encoder(model: Path, threads: int, **options: Any) -> tuple[Score, Any]:
    """sentence-transformers' CrossEncoder, called as in its documentation, and its tokenizer."""
    import torch
    from sentence_transformers import CrossEncoder

    torch.set_num_threads(threads)
    encoder = CrossEncoder(str(model), device="cpu", **options)

    def score(query: str, documents: Sequence[str]) -> list[float]:
        return [float(s) for s in encoder.predict([(query, document) for document in documents], show_progress_bar=False)]

    return score, encoder.tokenizer


def bf16(model: Path, threads: int) -> tuple[Score, Any]:
    """CrossEncoder with its weights in bfloat16."""
    return cross_encoder(model, threads, model_kwargs={"dtype": "bfloat16"})


def onnx(model: Path, threads: int) -> tuple[Score, Any]:
    """CrossEncoder on ONNX Runtime, which exports the model as it loads it."""
    options = {"session_options": sessions(threads), "provider": "CPUExecutionProvider"}
    return cross_encoder(model, threads, backend="onnx", model_kwargs=options)


def sessions(threads: int) -> Any:
    """ONNX Runtime's options with a number of threads. By default it uses all of the machine's cores, whatever the CPU quota is."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return options


def openvino_f32(model: Path, threads: int) -> tuple[Score, Any]:
    """CrossEncoder on OpenVINO, set to compute in fp32."""
    return openvino(model, threads, "f32")


def openvino_bf16(model: Path, threads: int) -> tuple[Score, Any]:
    """CrossEncoder on OpenVINO in bfloat16, which is also its default if the CPU supports it."""
    return openvino(model, threads, "bf16")


def openvino(model: Path, threads: int, precision: str) -> tuple[Score, Any]:
    """CrossEncoder on OpenVINO, which converts the model as it loads it."""
    configuration = {"INFERENCE_NUM_THREADS": str(threads), "INFERENCE_PRECISION_HINT": precision}
    return cross_encoder(model, threads, backend="openvino", model_kwargs={"ov_config": configuration})


def flashrank(model: Path, threads: int) -> tuple[Score, Any]:
    """FlashRank on our weights, rounded to int8 like its own models. They lie where it expects a model that it knows by name."""
    import onnxruntime
    from flashrank import Ranker, RerankRequest

    home = model.parent / "flashrank" / FLASHRANK_NAME
    write_flashrank(model, home)
    ranker = Ranker(model_name=FLASHRANK_NAME, cache_dir=str(home.parent), log_level="ERROR")
    ranker.session = onnxruntime.InferenceSession(str(home / FLASHRANK_FILE), sessions(threads))  # it has no setting for threads

    def score(query: str, documents: Sequence[str]) -> list[float]:
        passages = [{"id": number, "text": text} for number, text in enumerate(documents)]
        ranked = ranker.rerank(RerankRequest(query=query, passages=passages))
        return [float(passage["score"]) for passage in sorted(ranked, key=lambda passage: passage["id"])]

    return score, None


def write_flashrank(model: Path, home: Path) -> None:
    """Export and quantize the model, and write the files as in FlashRank's downloads."""
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from optimum.onnxruntime import ORTModelForSequenceClassification

    home.mkdir(parents=True, exist_ok=True)
    ORTModelForSequenceClassification.from_pretrained(model, export=True).save_pretrained(home)
    for file in model.glob("*.json"):
        shutil.copyfile(file, home / file.name)
    quantize_dynamic(home / "model.onnx", home / FLASHRANK_FILE, weight_type=QuantType.QInt8, per_channel=True)


KINDS = {
    "cross-encoder": cross_encoder,
    "cross-encoder-bf16": bf16,
    "cross-encoder-onnx": onnx,
    "cross-encoder-openvino-f32": openvino_f32,
    "cross-encoder-openvino-bf16": openvino_bf16,
    "flashrank": flashrank,
}


def tokenize(tokenizer: Any, query: str, documents: Sequence[str]) -> list[float]:
    """Tokenize in batches as predict does, without scoring."""
    for start in range(0, len(documents), BATCH):
        pairs = [[query, document] for document in documents[start : start + BATCH]]
        tokenizer(pairs, padding=True, truncation=True, max_length=LENGTH, return_tensors="pt")
    return []


def answer(score: Score, tokenizer: Any, request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request, with the seconds that it took."""
    query, documents = request["query"], request["documents"]
    if request.get("tokenize") and tokenizer is None:
        return {"seconds": None, "scores": []}
    started = time.perf_counter()
    scores = tokenize(tokenizer, query, documents) if request.get("tokenize") else score(query, documents)
    return {"seconds": time.perf_counter() - started, "scores": scores}


def serve(lines: TextIO, answers: TextIO, kind: str, model: Path, threads: int) -> None:
    """Load the model, report that it is ready, then answer until the lines end."""
    score, tokenizer = KINDS[kind](model, threads)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in lines:
        print(json.dumps(answer(score, tokenizer, json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    output = os.fdopen(os.dup(1), "w")  # what libraries print goes to the log beside the answers
    os.dup2(2, 1)
    serve(sys.stdin, output, sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
