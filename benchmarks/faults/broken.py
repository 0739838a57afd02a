"""Faults of the model, its thread and the process."""

import signal
import threading
from contextlib import suppress
from pathlib import Path

import httpx

from benchmarks.faults.drill import FAULTY, LOST, drill, must, request, until
from benchmarks.faults.serving import FAILS, HANGS, KILLS, MEMORY_TOKENS, STARVES

HUNG_SECONDS = 2


def one_input_fails(folder: Path) -> str:
    """The model raises an exception on one document."""
    with drill(folder, FAULTY) as it:
        with it.asking() as seen:
            statuses = {it.post(request("eel", extra=FAILS)).status_code for _ in range(5)}
        must(statuses == {500}, f"its request was answered {statuses}")
        must(it.health() == (200, 200), f"health is {it.health()}")
        return f"5 requests with it get 500; other clients: {seen.check()}, with the usual scores; both probes stay green"


def thread_killed(folder: Path) -> str:
    """The model's thread ends."""
    with drill(folder, FAULTY) as it:
        with it.asking() as seen:
            status = it.post(request("eel", extra=KILLS)).status_code
            red = until(lambda: it.health() == (503, 503), "health turns red")
            after = it.post(request("eel"))
        must(status in (500, 503), f"its request was answered {status}")
        answers = seen.check(allowed=(200, 503))
        must(after.status_code == 503, f"a request after it was answered {after.status_code}")
        return (
            f"the request that ended it gets {status}; both probes are red {red:.1f} s after that answer; "
            f"other clients: {answers}; `{after.json()['message']}`"
        )


def model_hangs(folder: Path) -> str:
    """The device stops answering, so a batch never ends."""
    with drill(folder, FAULTY, hung_seconds=HUNG_SECONDS) as it:

        def ask_in_vain() -> None:
            with suppress(httpx.TransportError):
                httpx.post(f"{it.service.url}/rerank", json=request("eel", extra=HANGS), timeout=60)

        threading.Thread(target=ask_in_vain, daemon=True).start()
        red = until(lambda: it.health() == (503, 503), "health turns red")
        status = it.post(request("newt")).status_code
        must(status == 503, f"a request after it was answered {status}")
        it.service.process.kill()  # as the orchestrator does
        return f"with hung_seconds={HUNG_SECONDS} both probes are red after {red:.1f} s; later requests get 503 at once"


def out_of_memory(folder: Path) -> str:
    """The device has too little memory for a batch."""
    with drill(folder, FAULTY) as it:
        with it.asking() as seen:
            response = it.post(request("eel", 40, extra=STARVES))
        must(response.status_code == 200, f"it was answered {response.status_code}")
        must(len(response.json()["results"]) == 40, "documents are missing")
        return (
            f"with memory for {MEMORY_TOKENS} tokens the batch runs in halves: 200 with all 40 documents; "
            f"other clients: {seen.check()}"
        )


def terminated_under_load(folder: Path) -> str:
    """SIGTERM while clients send requests."""
    with drill(folder) as it:
        with it.asking() as seen:
            it.service.process.send_signal(signal.SIGTERM)
            code = it.service.process.wait(60)
        must(code == 0, f"the exit code is {code}")
        return f"exit code 0; accepted requests are answered, later connections refused ({seen.check((200, 503, LOST))})"


FAULTS = (one_input_fails, thread_killed, model_hangs, out_of_memory, terminated_under_load)
