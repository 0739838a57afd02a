"""Measures other rerankers' servers on the same GPU, if installed, with as many documents a request as our service gets.

Each serves a model of the embedded one's sizes with random weights, and truncates documents at the model's limit of 512 tokens.
"""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.record import Row
from benchmarks.gpu.shapes import shape_of
from benchmarks.performance.peers import Server
from benchmarks.performance.rounds import spread
from keyblock.bundle import TOKENIZER_FILE
from keyblock.runtime.cpus import default_threads
from keyblock.runtime.session import one_line
from tests.support.texts import Request, invented

TURNS = 5
MODEL = "minilm-l6"


class Infinity(Server):
    """infinity-emb."""

    program, title = "infinity_emb", "infinity-emb, fp16"

    def command(self, python: Path, model: Path, port: int) -> list[object]:
        """See Server."""
        return [*super().command(python, model, port), "--device", "cuda", "--dtype", "float16"]


class Vllm(Server):
    """vLLM, whose requests name the model."""

    program, title = "vllm", "vLLM, fp16"

    def command(self, python: Path, model: Path, port: int) -> list[object]:
        """See Server."""
        where = ["--host", "127.0.0.1", "--port", port, "--served-model-name", MODEL]
        return [python.with_name(self.program), "serve", model, "--runner", "pooling", "--dtype", "half", *where]

    def body(self, request: Request) -> dict[str, Any]:
        """See Server."""
        return {"model": MODEL, "truncate_prompt_tokens": 512, **super().body(request)}


class Tei(Server):
    """Hugging Face's text-embeddings-inference, which has another request format."""

    program, title = "text-embeddings-router", "TEI, fp16"

    def command(self, python: Path, model: Path, port: int) -> list[object]:
        """See Server."""
        where = ["--hostname", "127.0.0.1", "--port", port, "--max-client-batch-size", 1024]
        return [python.with_name(self.program), "--model-id", model, "--dtype", "float16", "--auto-truncate", *where]

    def body(self, request: Request) -> dict[str, Any]:
        """See Server."""
        return {"query": request.query, "texts": request.documents}

    def scores(self, answer: Any) -> list[float]:
        """See Server."""
        return [result["score"] for result in sorted(answer, key=lambda result: result["index"])]


SERVERS: tuple[type[Infinity | Vllm | Tei], ...] = (Infinity, Vllm, Tei)


def measure(bench: Bench) -> Iterator[Row]:
    """A row for each server: documents a second, or why it has none."""
    for server in SERVERS:
        row = {"table": "servers", "way": server.title}
        found = shutil.which(server.program) or shutil.which(server.program, path=str(Path(sys.executable).parent))
        if found is None:
            yield row | {"refused": "not installed"}
            continue
        try:
            yield row | measure_server(bench, server, Path(found))
        except Exception as error:  # from writing the model, starting the server or a request
            yield row | {"refused": one_line(error)}


def measure_server(bench: Bench, server: type[Server], program: Path) -> Row:
    """Documents a second of one request at a time, all documents new. Raises PeerError, or an error of writing the model."""
    source = invented(bench.bundle / TOKENIZER_FILE)
    requests = [source.request(bench.sizes.documents, bench.sizes.words) for _ in range(TURNS + 1)]
    running = server(program, write_model(bench), default_threads(), bench.home / f"{program.name}.log")
    try:
        running.rank(requests[0])
        seconds = [running.rank(request).seconds for request in requests[1:]]
    finally:
        running.stop()
    took = spread(seconds)
    return {"seconds": took, "documents_a_second": bench.sizes.documents / took["median"]}


def write_model(bench: Bench) -> Path:
    """Write a Hugging Face directory with a random model."""
    from transformers import BertForSequenceClassification

    from benchmarks.performance.weights import write_tokenizer  # imports the training package

    directory = bench.home / MODEL
    config = shape_of(MODEL).config()
    BertForSequenceClassification(config).save_pretrained(directory)
    write_tokenizer(directory, bench.bundle / TOKENIZER_FILE, config.max_position_embeddings)
    return directory
