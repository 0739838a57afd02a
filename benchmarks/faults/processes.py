"""Faults of the process and of what it stands on."""

import shutil
import signal
from pathlib import Path

from benchmarks.faults.drill import FAULTY, drill, must, request
from benchmarks.faults.serving import CLOCK_JUMP
from benchmarks.faults.stores import by_id, lines
from service.settings import DEFAULT_BUNDLE


def terminated_under_load(folder: Path) -> str:
    """SIGTERM while clients send requests."""
    with drill(folder) as it:
        with it.asking() as tally:
            it.service.process.send_signal(signal.SIGTERM)
            code = it.service.process.wait(60)
        must(code == 0, f"the exit code is {code}")
        must(not tally.wrong and set(tally.statuses) <= {200, 503}, f"{tally.statuses}, {tally.wrong[:1]}")
        return f"exit code 0; every accepted request is answered ({dict(tally.statuses)}), and later connections are refused"


def killed_under_load(folder: Path) -> str:
    """SIGKILL while clients send requests, then a new start."""
    store = folder / "store"
    with drill(folder, store=store) as it:
        it.client.put("/documents", content=lines(["a", "b"])).raise_for_status()
        with it.asking() as tally:
            it.service.process.kill()
            it.service.process.wait(60)
        must(not tally.wrong and set(tally.statuses) == {200}, f"{tally.statuses}, {tally.wrong[:1]}")
    with drill(folder, store=store) as it:
        must(it.post(by_id(["a", "b"])).status_code == 200, "the store is not what it was")
        return f"clients lose their connections, but no answer is wrong; ready {it.service.start_seconds:.1f} s after the start"


def clock_jumps(folder: Path) -> str:
    """The wall clock jumps a day ahead under load."""
    with drill(folder, FAULTY, store=folder / "store") as it:
        kept, gone = lines(["kept"]), lines(["gone"]).replace(b'"text"', b'"expires_in": 3600, "text"')
        it.client.put("/documents", content=kept + gone).raise_for_status()
        must(it.post(by_id(["kept", "gone"])).status_code == 200, "they are not stored")
        with it.asking() as tally:
            it.service.process.send_signal(CLOCK_JUMP)
            hurried = [it.post(request("newt", deadline_ms=60_000)).json()["meta"]["degraded"] for _ in range(5)]
        must(not any(hurried), "a deadline of a minute degrades")
        must(it.health() == (200, 200), f"health is {it.health()}")
        must(it.post(by_id(["kept"])).status_code == 200, "a document without expiry has gone")
        must(it.post(by_id(["gone"])).status_code == 422, "a document whose hour is over is there")
        return f"deadlines, queue and health do not change ({tally.check()}); a stored document with an hour to live has expired"


def bundle_replaced_by_garbage(folder: Path) -> str:
    """The bundle's files are overwritten with garbage, and an operator reloads."""
    bundle = folder / "bundle"
    shutil.copytree(DEFAULT_BUNDLE, bundle)
    graph = (bundle / "model.onnx").read_bytes()
    with drill(folder, bundle=bundle) as it, it.asking() as tally:
        (bundle / "model.onnx").write_bytes(b"garbage" * 1000)
        refused = it.client.post("/admin/reload")
        must(refused.status_code == 409, f"the reload was answered {refused.status_code} {refused.text[:200]}")
        must(it.health() == (200, 200), f"health is {it.health()}")
        (bundle / "model.onnx").write_bytes(graph)
        again = it.client.post("/admin/reload").status_code
        must(again == 200, f"the reload of a mended bundle was answered {again}")
    reason = refused.json()["message"].replace(str(bundle), "BUNDLE")
    return f"the old bundle stays in use, `{reason}`; once the file is restored, the reload succeeds; clients: {tally.check()}"
