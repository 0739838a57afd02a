"""The GPU's script without a GPU: processes that end well, fail and hang, what travels, and what is compared."""

import json
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu import __main__ as script
from benchmarks.gpu.driver import Driver
from benchmarks.gpu.parts import SIZES, Bench, Work, compared, operations, random_batch, timed
from benchmarks.gpu.prepare import load, save
from keyblock.packing import Packed
from keyblock.runtime.providers import Provider

DEVICE = {
    "part": "device",
    "device": "X",
    "sizes": "small",
    "rows": [{"table": "device"}],
    "run": {"command": "", "commit": "a", "date": "b"},
}
CHILD = "import os, pathlib, sys, time\npath = pathlib.Path({path!r})\npath.parent.mkdir(exist_ok=True)\n{code}"


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Namespace:
    monkeypatch.setattr(script, "device_name", lambda _: "X")
    return script.parser().parse_args(["--sizes", "small", "--home", str(tmp_path), "--only", "device"])


def measured(options: Namespace, monkeypatch: pytest.MonkeyPatch, code: str) -> dict[str, Any] | None:
    """The record after a part's process has done what the code says."""
    child, real = CHILD.format(path=str(script.path_of(options, "device")), code=code), subprocess.Popen

    def popen(_: list[str], **more: Any) -> "subprocess.Popen[bytes]":
        return real([sys.executable, "-S", "-c", child], **more)

    with monkeypatch.context() as patched:
        patched.setattr(script.subprocess, "Popen", popen)
        script.measure_all(options, 2)
    return script.read(options, "device")


def written(why: str) -> str:
    return f"path.write_text({json.dumps(json.dumps(DEVICE | {'why': why}))})"


def test_a_part_that_fails_keeps_its_rows_and_is_measured_again(options: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured(options, monkeypatch, f"{written('?')}\nsys.exit('out of memory')")
    assert found is not None
    assert (found["why"], len(found["rows"])) == ("its process ended with 1: out of memory", 1)
    found = measured(options, monkeypatch, written(""))
    assert found == DEVICE | {"why": ""}
    assert measured(options, monkeypatch, "path.unlink()") == found  # what is measured is not measured again


def test_a_part_that_hangs_is_ended(options: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "MARGIN", 0.5)
    monkeypatch.setitem(script.PARTS, "device", 0.02)
    found = measured(options, monkeypatch, f"{written('?')}\ntime.sleep(3600)")
    assert found is not None
    assert found["why"].startswith("its process ended with its time")


def test_a_page_is_of_one_gpu() -> None:
    record = DEVICE | {
        "why": "",
        "rows": [{"table": "roofline", "what": "fp16", "TFLOP/s": 900.0}, {"table": "roofline", "GB/s": None}],
    }
    assert "| roofline | what | TFLOP/s | GB/s |" in script.report({"device": record, "speed": None})
    assert "- speed: never tried" in script.report({"device": record, "speed": None})
    for other in (None, record | {"device": "Y"}, record | {"run": {"command": "python -m benchmarks.gpu --provider cpu"}}):
        with pytest.raises(SystemExit, match="a page is of one GPU"):
            script.report({"device": other and record, "speed": other})


def test_sequences_travel(tmp_path: Path) -> None:
    nothing = np.zeros(0, np.intp)
    packed = [Packed(np.arange(length, dtype=np.int32), split, nothing) for length, split in ((5, 2), (9, 4), (3, 1))]
    save(tmp_path / "file.npz", packed, [0, 0, 1])
    found, queries = load(tmp_path / "file.npz", 2)
    assert [(one.ids.tolist(), one.split) for one in found] == [(list(range(5)), 2), (list(range(9)), 4)]
    assert queries.tolist() == [0, 0]


def test_orders_that_change_are_counted() -> None:
    before, after = np.array([3.0, 2.0, 1.0, 5.0, 4.0], np.float32), np.array([2.0, 3.0, 1.0, 5.0, 4.5], np.float32)
    found = compared(before, after, np.array([0, 0, 0, 1, 1]))
    assert found == {"largest difference": 1.0, "mean": pytest.approx(0.5), "first kept": 0.5, "pairs swapped": 0.25}


def test_bound_inputs_give_what_the_session_gives(tmp_path: Path) -> None:
    from benchmarks.gpu.parts import CPU_WAYS, VARIANT
    from keyblock.bundle import GRAPH_FILE, load_bundle

    graph = next(iter(load_bundle(script.ROOT / "models" / "default").manifest.variants.values())).graph
    (tmp_path / VARIANT).write_text(
        json.dumps({"graph": graph.model_copy(update={"file": GRAPH_FILE}).model_dump(), "quality": {}})
    )
    bench = Bench(Provider.CPU, SIZES["small"], tmp_path, tmp_path)
    batch = random_batch(2, 16)
    served, bound = (Work(bench, way).score(*batch) for way in CPU_WAYS[:2])
    np.testing.assert_allclose(served, bound, atol=1e-5)
    work = Work(bench, CPU_WAYS[0])
    work.load(batch)
    found = timed(work, 0.01)
    assert 0 < found["ms"] <= found["ms, p90"]
    assert operations(128) == pytest.approx(2.87e9, rel=0.01)


def test_without_a_driver_nothing_is_told() -> None:
    class Nothing:
        NVMLError = ValueError

        def __getattr__(self, _: str) -> Any:
            def refuse(*_: object) -> None:
                raise ValueError

            return refuse if _ != "nvmlDeviceGetHandleByIndex" else lambda _: 0

    driver = Driver(Nothing())
    assert (driver.name, driver.memory, driver.joules, driver.clocks) == (None, None, None, {})
