"""How a process begins and ends, whatever it does."""

import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from service.processes.child import Order, run
from service.processes.peer import HEADER, Kind, framed, read_frame
from service.settings import Settings
from service.start import NOT_STARTED
from tests.service.faults import PATIENCE


def done(work: str, place: Path) -> tuple[int, str, list[Any]]:
    """The exit code of a process with this work, what it logs, and what it asks its supervisor."""
    ours, its = socket.socketpair()
    asked: list[Any] = []

    def answer() -> None:
        try:
            while True:
                _, number, (method, arguments) = read_frame(ours)
                asked.append((method, *arguments))
                ours.sendall(framed((Kind.RETURNED, number, None)))
        except EOFError:
            return

    with ours:
        with its:
            command = [sys.executable, "-m", "service.processes", str(its.fileno()), f"tests.service.processes.works:{work}"]
            process = subprocess.Popen(command, pass_fds=[its.fileno()], stderr=subprocess.PIPE, text=True)
        ours.sendall(framed(Order(Settings(processes=2), place / "model", [], [])))
        answering = threading.Thread(target=answer)
        answering.start()
        _, log = process.communicate(timeout=PATIENCE)
        answering.join()
    return process.returncode, log, asked


@pytest.mark.parametrize("sent", [b"", HEADER.pack(1000)])
def test_a_supervisor_that_is_gone_before_its_first_message(sent: bytes) -> None:
    ours, its = socket.socketpair()
    with its:
        with ours:
            ours.sendall(sent)

        async def work(*_: object) -> int:
            raise AssertionError("it was told nothing")

        assert run(work, its) == NOT_STARTED


def test_an_interrupted_process_prints_nothing_more(tmp_path: Path) -> None:
    assert done("interrupted", tmp_path) == (0, "", [("started",)])


def test_a_hang_up_is_for_the_supervisor(tmp_path: Path) -> None:
    code, log, asked = done("hears_nothing", tmp_path)
    assert (code, asked) == (0, [("started",)])
    assert "still here" in log


def test_a_process_reports_when_it_loads(tmp_path: Path) -> None:
    assert done("loads", tmp_path) == (0, "", [("loading", True), ("loading", False)] * 2)


def test_a_place_that_nobody_else_is_left_for_is_removed(tmp_path: Path) -> None:
    """The supervisor is killed while the process starts."""
    place = tmp_path / "keyblock"
    place.mkdir()
    ours, its = socket.socketpair()
    with its:
        command = [sys.executable, "-m", "service.processes", str(its.fileno()), "tests.service.processes.works:hears_nothing"]
        process = subprocess.Popen(command, pass_fds=[its.fileno()], stderr=subprocess.PIPE, text=True)
    with ours:
        ours.sendall(framed(Order(Settings(processes=2), place / "model", [], [])))
    _, log = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in log
    assert not place.exists()
