"""The benchmark's weights are the embedded ranker's, clients are honest, and a record becomes verdicts and a page."""

import json
import threading
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertConfig, BertModel

from benchmarks.performance.__main__ import main
from benchmarks.performance.bench import BUNDLE, write_hugging_face, write_wide_bundle
from benchmarks.performance.parts import largest_difference, send_all
from benchmarks.performance.report import BEGIN, END, read_record, regressions, verdicts, write_record
from keyblock.bundle import TOKENIZER_FILE, load_bundle
from tests.support.serving import ServiceError
from training.model.cross_encoder import CrossEncoder

TEXTS = ["The Danube flows through Vienna.", "Members may end the contract.", "A letter reached him in the spring; " * 20]
RUN = {
    "command": "python -m benchmarks.performance",
    "sizes": "full",
    "texts": "invented",
    "commit": "abc",
    "date": "2026",
    "load": 0.1,
}


def spread(value: float) -> dict[str, float]:
    return {"median": value, "low": value, "high": value, "turns": 3}


@pytest.fixture
def record() -> dict[str, Any]:
    """Throughput ratios of 4 and 16; one target missed: the memory's growth."""
    ours = [("KeyBlock, 512 tokens", 512, 2.0), ("KeyBlock, as it comes", None, 0.5)]
    rows = [{"name": name, "ours": True, "default": True, "tokens": tokens, "seconds": spread(s)} for name, tokens, s in ours]
    rows += [{"name": "slow", "ours": False, "default": True, "tokens": 512, "seconds": spread(8.0)}]
    stages = {"transfer": 0.04, "model": 1.0, "after": 0.0, "whole": 1.04}
    warm = {"name": "KeyBlock", "tokens": 512, "seen": "warm", "stages": stages, "share_before": 0.005}
    parts: dict[str, dict[str, Any]] = {
        "throughput": {
            "documents": 100,
            "words": 2000,
            "rows": [r | {"precision": "bf16"} for r in rows],
            "parity": {"slow": 0.001},
        },
        "stages": {"documents": 100, "words": 2000, "rows": [warm]},
        "length": {"documents": 100, "seconds": {"2000": spread(2.0), "20000": spread(2.5)}},
        "concurrency": {
            "clients": 32,
            "words": 2000,
            "documents_a_second": {"one batch": spread(100.0), "32 clients": spread(95.0)},
        },
        "memory": {"first": 100, "last": 1000, "cache_bytes": 2**20, "cached_first": 2**20, "cached_last": 2**20}
        | {"resident_start": 300 << 20, "resident_first": 400 << 20, "resident_last": 440 << 20},
        "start": {"first": 2.6, "seconds": spread(2.5)},
    }
    machine = {"cpu": "A CPU", "threads": 2, "bf16": "avx512_bf16", "python": "3.11.7"}
    return {
        "machine": machine,
        "versions": {"onnx": {"onnxruntime": "1"}},
        "parts": {n: p | {"run": dict(RUN)} for n, p in parts.items()},
    }


def test_peers_compute_what_keyblock_computes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    ranker = CrossEncoder(BertModel(BertConfig(**sizes), add_pooling_layer=False)).eval()
    torch.nn.init.normal_(ranker.head.weight, std=2.0)  # logits of the size that a trained one gives
    torch.nn.init.constant_(ranker.head.bias, -3.0)
    write_hugging_face(tmp_path, ranker, BUNDLE / TOKENIZER_FILE)
    tokenizer, model = AutoTokenizer.from_pretrained(tmp_path), AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    encoded = tokenizer(["Which river flows through Vienna?"] * 3, TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        ours = ranker(encoded["input_ids"], encoded["token_type_ids"], encoded["attention_mask"])
        theirs = model(**encoded).logits.squeeze(-1)
    assert float(ours.std()) > 0.05
    torch.testing.assert_close(theirs, ours, atol=1e-2, rtol=0)
    assert largest_difference(torch.sigmoid(theirs).tolist(), ours.tolist()) < 1e-2
    (own,) = load_bundle(BUNDLE).tokenizer.encode(TEXTS[:1])
    assert tokenizer(TEXTS[0], add_special_tokens=False)["input_ids"] == list(own.ids)


def test_the_wide_bundle_differs_in_its_range_alone(tmp_path: Path) -> None:
    wide, narrow = (load_bundle(path).manifest for path in (write_wide_bundle(BUNDLE, tmp_path / "wide", 512), BUNDLE))
    assert wide.pipeline.packing.budget_range == (narrow.pipeline.packing.budget_range[0], 512)
    assert (wide.pipeline.packing.budget, wide.files) == (narrow.pipeline.packing.budget, narrow.files)


class Echo(BaseHTTPRequestHandler):
    """Sends the body back."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_every_request_is_answered_and_a_degraded_answer_is_no_measurement() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        ended = send_all(url, [b"{}"] * 12, 4)
        assert (len(ended), ended) == (12, sorted(ended))
        with pytest.raises(ServiceError, match="degraded"):
            send_all(url, [json.dumps({"degraded": True}, separators=(",", ":")).encode()], 1)
        server.shutdown()
    with pytest.raises(ServiceError, match="not answered"):
        send_all(url, [b"{}"], 1)


def test_verdicts_and_what_is_worse_than_recorded(record: dict[str, Any]) -> None:
    found = {target.name: (value, target.verdict(value)) for target, value in verdicts(record) if value is not None}
    assert found["throughput at 512 tokens, over the faster peer's"] == (4.0, "passed")
    assert found["throughput at the default budget"] == (16.0, "passed")
    assert found["memory after ten times the requests, over that before"] == (pytest.approx(1.1), "**missed** by 5%")
    assert "throughput at 128 tokens" not in found
    new = deepcopy(record)
    new["parts"]["throughput"]["rows"][0]["seconds"]["median"] *= 1.1
    assert regressions(new, record, 0.15) == []
    new["parts"]["throughput"]["rows"][0]["seconds"]["median"] *= 1.2
    new["parts"]["start"]["seconds"]["median"] = 10.0  # seconds are not compared
    assert regressions(new, record, 0.15) == ["throughput at 512 tokens, over the faster peer's: 3.030, recorded 4.000"]
    new["parts"]["throughput"]["run"]["sizes"] = "quick"
    assert regressions(new, record, 0.15) == []


def test_a_page_is_published_unless_a_ratio_is_worse(
    record: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {name: tmp_path / name for name in ("latest", "recorded", "page")}
    flags = ["--publish", *(f"--{name}={path}" for name, path in files.items())]
    assert main(flags) == 2
    assert "nothing is measured yet" in capsys.readouterr().err
    write_record(files["latest"], record)
    files["page"].write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    assert main(flags) == 0
    page = files["page"].read_text(encoding="utf-8")
    assert page.startswith("before\n")
    assert page.endswith("after\n")
    assert "| slow (default) | bf16 | 8.00 (8.00 to 8.00) | 12.5 | 1.00 |" in page
    better = deepcopy(record)
    better["parts"]["length"]["seconds"]["20000"]["median"] = 2.0
    write_record(files["recorded"], better)
    assert main(flags) == 1
    assert read_record(files["recorded"]) == better
    assert main([*flags, "--accept"]) == 0
    assert read_record(files["recorded"]) == record
