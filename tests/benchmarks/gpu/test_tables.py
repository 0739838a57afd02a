"""The page, from records as a GPU would leave them, with round numbers."""

from pathlib import Path

import pytest

from benchmarks.gpu.plan import PARTS
from benchmarks.gpu.record import PartRecord, Row, Setup, State, new_record
from benchmarks.gpu.tables import BEGIN, NothingToSayError, report, write_page
from benchmarks.performance.report import END, PageError

SETUP: Setup = {"device": "NVIDIA X", "provider": "cuda", "sizes": "full"}
DEVICE: list[Row] = [
    {
        "table": "device",
        "name": "NVIDIA X",
        "driver": "580.1",
        "memory": 141 << 30,
        "clocks": {"SM now": 345},
        "cuda": "13.0",
        "host": "a CPU, 16 threads",
        "python": "3.12.3",
        "providers": ["CUDAExecutionProvider"],
        "versions": {"torch": "2.11"},
    },
    {"table": "roofline", "what": "fp16", "rate": 800e12},
    {"table": "roofline", "what": "tf32", "rate": 400e12},
    {"table": "roofline", "what": "memory", "rate": 4300e9},
    {"table": "clocks", "after": {"SM now": 1980}},
]
SPEED: Row = {"table": "speed", "shape": "minilm-l6", "way": "ONNX Runtime", "precision": "fp16", "budget": 128}
TIMES: Row = {"latency": 0.001, "latency_p90": 0.002, "rate": 1000.0}
SPREAD = {"median": 4.0, "low": 3.0, "high": 5.0, "turns": 3}


def record(part: str, rows: list[Row], state: State = State.MEASURED, why: str = "") -> PartRecord:
    return {**new_record(part, SETUP, state, why), "rows": rows, "seconds": 90.0}


@pytest.fixture
def records() -> dict[str, PartRecord]:
    speed = [
        SPEED | TIMES | {"batch": 8, "sequences": 8000.0, "achieved": 200e12},
        SPEED | TIMES | {"batch": 32, "sequences": 32_000.0, "achieved": 400e12},
        SPEED | TIMES | {"batch": 8, "precision": "fp32", "sequences": 4000.0, "achieved": 100e12},
        SPEED | {"batch": 512, "refused": "out of memory"},
    ]
    parity = {"table": "parity", "sequences": 2000, "queries": 40}
    service = {"table": "service", "clients": 8, "documents": 4800, "seconds": 2.0}
    parts = {
        "device": DEVICE,
        "parity": [
            parity | {"way": "CUDA fp16", "largest": 0.0123, "mean": 0.001, "first_kept": 0.975, "swapped": 0.001},
            parity | {"way": "TensorRT fp16", "refused": "not there"},
        ],
        "service": [
            {"table": "start", "seconds": SPREAD, "provider": "cuda", "arithmetic": "fp16"},
            {"table": "stages", "seconds": 0.25, "stages": {"model": 0.02}},
            service | {"seen": "new", "documents_a_second": 2400.0, "joules": 123.4},
            service | {"seen": "by id", "documents_a_second": 9600.0, "joules": None},
            {"table": "memory", "resident": 512 << 20, "device": 1 << 30},
        ],
        "minilm-l6": speed,
        "servers": [{"table": "servers", "way": "vLLM, fp16", "refused": "not installed"}],
    }
    made = {name: record(name, rows) for name, rows in parts.items()}
    return made | {"compiled": record("compiled", [], State.LEFT_OUT, "it may take 3 minutes, and 1.0 were left")}


def test_every_table(records: dict[str, PartRecord]) -> None:
    text = report(records)
    for said in (
        "Measured on NVIDIA X, full sizes.",
        "8 minutes of measuring",
        "NVIDIA X, 144,384 MiB, driver 580.1, CUDA 13.0; host: a CPU, 16 threads, Python 3.12.3.",
        "| fp16 | 800.0 TFLOP/s |",
        "| memory | 4,300 GB/s |",
        "| CUDA fp16 | 0.0123 | 0.00100 | 97.5% | 0.100% |",
        "| TensorRT fp16 | not computed: not there |",
        "On cuda in fp16. From start to ready, every shape warmed up: 4.0 s (3.0 to 5.0).",
        "| new | 8 | 2,400 | 123 |",
        "| by id | 8 | 9,600 | not told |",
        "1,024 MiB of the GPU's, 512 MiB of the host's",
        "| ONNX Runtime | fp16 | 128 | 8,000 (25%) | 32,000 (50%) |",
        "| ONNX Runtime | fp32 | 128 | 4,000 (25%) |",
        "| ONNX Runtime | fp16 | 128 | 1.00 (2.00) | 1.00 (2.00) |",
        "- ONNX Runtime fp16 at 128 x 512 was refused: out of memory",
        "| vLLM, fp16 | not installed |",
        "- torch.compile: left out, it may take 3 minutes, and 1.0 were left",
        "- TensorRT: never tried",
    ):
        assert said in text
    assert "torch.compile by" not in text


def test_the_page_gets_them_between_its_marks_and_keeps_the_rest(records: dict[str, PartRecord], tmp_path: Path) -> None:
    page = tmp_path / "gpu.md"
    page.write_text(f"# GPUs\n\n{BEGIN}\n\nNot measured yet.\n\n{END}\n\nBehind.\n")
    for _ in range(2):
        write_page(page, records)
    text = page.read_text()
    assert text.startswith(f"# GPUs\n\n{BEGIN}\n\nMeasured on NVIDIA X")
    assert text.endswith(f"{END}\n\nBehind.\n")
    assert "Not measured yet" not in text
    page.write_text("# GPUs\n")
    with pytest.raises(PageError):
        write_page(page, records)


def test_the_real_page_has_its_place_and_says_what_the_parts_are() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "gpu.md").read_text(encoding="utf-8")
    assert BEGIN in page.partition(END)[0]
    assert [part.name for part in PARTS if f"| `{part.name}` |" not in page] == []


def test_nothing_of_a_cpu_or_of_two_gpus_is_published(records: dict[str, PartRecord]) -> None:
    with pytest.raises(NothingToSayError, match="no part is measured"):
        report({})
    records["parity"]["setup"] = {**SETUP, "device": "NVIDIA Y"}
    with pytest.raises(NothingToSayError, match="NVIDIA X, cuda, full; NVIDIA Y, cuda, full"):
        report(records)
    for one in records.values():
        one["setup"] = {**SETUP, "provider": "cpu"}
    with pytest.raises(NothingToSayError, match="a page is of one GPU"):
        report(records)
