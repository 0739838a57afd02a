"""The service's part on the CPU: served over HTTP from a bundle with a variant that travelled without weights."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.gpu import servers, service
from benchmarks.gpu.bench import Bench
from benchmarks.gpu.servers import Infinity, Tei, Vllm
from keyblock.bundle import load_bundle
from tests.support.texts import Request


def test_start_documents_and_memory(bench: Bench) -> None:
    rows = list(service.measure(bench))
    assert [row["table"] for row in rows] == ["start", "stages", *["service"] * 4, "memory"]
    assert (rows[0]["provider"], rows[0]["arithmetic"], rows[0]["seconds"]["turns"]) == ("cpu", "fp32", 1)
    assert rows[1]["stages"]["model"] > 0
    asked = [(row["seen"], row["clients"], row["documents"], row["joules"]) for row in rows[2:-1]]
    assert asked == [("new", 1, 6, None), ("by id", 1, 6, None), ("new", 2, 6, None), ("by id", 2, 6, None)]
    assert min(row["documents_a_second"] for row in rows[2:-1]) > 0
    assert (rows[-1]["resident"] > 1 << 20, rows[-1]["device"]) == (True, None)


def test_energy_is_shared_among_the_documents(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """30 joules for two requests of three documents: 5,000 for 1,000."""
    told = iter([100.0, 130.0])
    monkeypatch.setattr(type(bench.driver), "joules", property(lambda _: next(told)))
    monkeypatch.setattr(service, "send_all", lambda *_: [])
    row = service.measure_requests(bench, type("Served", (), {"url": ""})(), [b"", b""], 1)
    assert (row["joules"], row["documents"]) == (5000, 6)


def test_the_variant_is_whole(bench: Bench) -> None:
    served = load_bundle(service.served_bundle(bench))
    entry = served.manifest.variants["fp16"].graph
    assert entry.file == "model.fp16.onnx"
    assert entry.fused["PackedAttention"] == 2
    assert entry.marks
    assert served.manifest.files[entry.file].bytes > 1_900_000, "30,522 rows of 32 in fp16"


OTHER = """
import http.server, json, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        answer = json.dumps([{"index": n, "score": -n} for n in reversed(range(len(asked["texts"])))]).encode()
        self.send_response(200); self.end_headers(); self.wfile.write(answer)
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


def test_an_installed_server_is_measured_and_the_others_are_named(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / Tei.program
    program.write_text(f"#!{sys.executable}\n{OTHER}")
    program.chmod(0o755)
    monkeypatch.setattr(servers, "write_model", lambda _: tmp_path)
    monkeypatch.setattr(servers.shutil, "which", lambda name, **_: str(program) if name == Tei.program else None)
    rows = list(servers.measure(bench))
    assert [row.get("refused") for row in rows] == ["not installed", "not installed", None]
    assert rows[2]["documents_a_second"] == bench.sizes.documents / rows[2]["seconds"]["median"]


def test_a_server_that_ends_is_named_with_its_output(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / Vllm.program
    program.write_text(f"#!{sys.executable}\nimport sys; sys.exit('no kernel image')")
    program.chmod(0o755)
    monkeypatch.setattr(servers, "write_model", lambda _: tmp_path)
    monkeypatch.setattr(servers, "SERVERS", (Vllm,))
    monkeypatch.setattr(servers.shutil, "which", lambda *_, **__: str(program))
    (row,) = servers.measure(bench)
    assert row["refused"] == "its server ended with 1: no kernel image"


def test_each_server_gets_requests_in_its_own_dialect(tmp_path: Path) -> None:
    request = Request("q", ["a", "b"], 0)
    infinity, vllm, tei = (object.__new__(kind) for kind in (Infinity, Vllm, Tei))  # not started
    commands = [server.command(Path("/x/program"), tmp_path, 80) for server in (infinity, vllm, tei)]
    assert [str(command[0]) for command in commands] == ["/x/infinity_emb", "/x/vllm", "/x/text-embeddings-router"]
    assert all(80 in command and tmp_path in command for command in commands)
    assert json.dumps(tei.body(request)) == '{"query": "q", "texts": ["a", "b"]}'
    assert vllm.body(request) == {"model": "minilm-l6", "truncate_prompt_tokens": 512, "query": "q", "documents": ["a", "b"]}
    assert tei.scores([{"index": 1, "score": 0.5}, {"index": 0, "score": 0.25}]) == [0.25, 0.5]
