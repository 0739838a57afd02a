"""keyblock rerank as a process: output for people, pipes and programs, exit codes, interruptions."""

import fcntl
import json
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from service.command.main import read_arguments
from tests.service.faults import PATIENCE
from tests.service.files.made import pdf
from tests.support.forks import Forks
from tests.support.serving import Service

QUERY = "How much notice must a tenant give to end the lease early?"
ESCAPE = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]")
COMMAND = [sys.executable, "-m", "service.command"]
TEXTS = ["advice-column.txt", "gym.txt", "lease.txt"]


def environment(**more: str) -> dict[str, str]:
    ours = ("KEYBLOCK_", "PYTHONUNBUFFERED", "COLUMNS", "LINES")  # pytest-xdist sets a width, which would hide the terminal's own
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"KEYBLOCK_PROVIDER": "cpu", "KEYBLOCK_THREADS": "1", "PYTHONPATH": os.getcwd()} | more


def run(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, timeout=2 * PATIENCE, check=False)


Run = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture(scope="module")
def fork() -> Iterator[Run]:
    """The outcome of the command, without the time that Python takes to import it."""
    with Forks("service.command.__main__", "service.command.local") as forks:

        def run(arguments: Sequence[str], folder: Path, given: bytes = b"", **more: str) -> subprocess.CompletedProcess[bytes]:
            return forks.run("service.command.__main__", arguments, environment(**more), folder, given)

        yield run


@pytest.fixture
def folder(tmp_path: Path, lease: dict[str, Any]) -> Path:
    """The README's documents, as texts and as JSON lines."""
    for document in lease["documents"]:
        (tmp_path / f"{document['id']}.txt").write_text(document["text"])
    (tmp_path / "all.jsonl").write_text("\n".join(map(json.dumps, lease["documents"])))
    return tmp_path


def test_json_lines(fork: Run, folder: Path, lease: dict[str, Any]) -> None:
    done = fork(["rerank", QUERY, *TEXTS, "--json", "--blocks", "1"], folder)
    assert (done.returncode, done.stderr) == (0, b"")
    first, second, third = map(json.loads, done.stdout.splitlines())
    assert [one["input"] for one in (first, second, third)] == ["lease.txt", "advice-column.txt", "gym.txt"]
    (block,) = first["blocks"]
    assert block["text"] == lease["documents"][2]["text"][block["start"] : block["end"]]
    assert "two months' notice is enough" in block["text"]
    assert [block["text"][start:end] for start, end in block["highlights"]] == ["tenant", "end", "early", "notice", "tenant"]
    assert (first["rank"], block["line"]) == (1, 9)


def test_lines_for_pipes(fork: Run, folder: Path, lease: dict[str, Any], bundle_path: Path) -> None:
    text = lease["documents"][2]["text"].encode()
    done = fork(["rerank", QUERY, "gym.txt", "-", "-n", "1"], folder, text)
    assert (done.returncode, done.stderr) == (0, b"")
    rows = [line.decode().split("\t") for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == ["1", "1"]
    assert rows[0][2] == "-:9"
    assert rows[0][3].startswith("After the first twelve months the tenant may end it early")
    done = fork(["rerank", QUERY, "gym.txt", "--blocks=0"], folder, KEYBLOCK_BUNDLE=str(bundle_path))
    assert done.stdout.decode().split("\t")[2:] == ["gym.txt", "\n"]


@pytest.mark.parametrize("without", [{}, {"NO_COLOR": "1"}], ids=["in colours", "without"])
def test_a_table_on_a_terminal(folder: Path, without: dict[str, str]) -> None:
    terminals = [pty.openpty(), pty.openpty()]
    for _, inner in terminals:
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 60, 0, 0))
    command, seen = [*COMMAND, "rerank", QUERY, *TEXTS], environment(TERM="xterm-256color", **without)
    process = subprocess.Popen(command, cwd=folder, env=seen, stdout=terminals[0][1], stderr=terminals[1][1])
    for _, inner in terminals:
        os.close(inner)
    table, progress = (b"".join(iter(lambda outer=outer: chunk(outer), b"")) for outer, _ in terminals)
    for outer, _ in terminals:
        os.close(outer)
    assert process.wait(PATIENCE) == 0
    assert bool(re.search(rb"\x1b\[1;33mnotice\x1b\[0m", table)) == (not without)
    assert bool(re.search(rb"\x1b\[[0-9;]*3[0-9]m", table)) == (not without)
    plain = ESCAPE.sub(b"", table).decode()
    assert max(map(len, plain.splitlines())) <= 60
    rows = [line.split() for line in plain.splitlines() if re.match(r"\d", line)]
    assert [row[2] for row in rows] == ["lease.txt:9", "advice-column.txt:5", "gym.txt:3"]
    assert b"ranking" in progress


def chunk(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux's word for the end of a terminal
        return b""


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        ([], 2, "COMMAND"),
        (["rerank"], 2, "QUERY"),
        (["rerank", "q"], 2, "FILE"),
        (["rerank", " ", "gym.txt"], 2, "argument QUERY: is empty: say what to rank the documents for"),
        (["rerank", "q", "gym.txt", "--nobody"], 2, "unrecognized arguments: --nobody"),
        (["rerank", "q", "gym.txt", "-n", "-1"], 2, "must be a whole number from 0 on, not '-1'"),
        (["rerank", "q", "gym.txt", "--budget", "0"], 2, "must be a whole number from 1 on, not '0'"),
        (["rerank", "q", "gym.txt", "--timeout", "nan"], 2, "must be a number of seconds above 0, not 'nan'"),
        (["rerank", "q", "gym.txt", "--bundle", "nobody"], 1, "keyblock: nobody: does not exist"),
        (["rerank", "q", "gym.txt", "--url", "http://127.0.0.1:1"], 1, "keyblock: http://127.0.0.1:1: "),
        (["rerank", "q", "gym.txt", "--url", "http://127.0.0.1:1", "--timeout", "1e-9"], 1, "127.0.0.1:1: no answer in the time"),
        (["rerank", "q", "gym.txt", "--url", "nowhere"], 1, "keyblock: url must be like http://127.0.0.1:8000, not 'nowhere'"),
        (["rerank", "q", "nobody.txt", "."], 1, "keyblock: there is nothing to rank"),
    ],
)
def test_exit_codes(fork: Run, folder: Path, bundle_path: Path, arguments: list[str], code: int, problem: str) -> None:
    done = fork(arguments, folder, KEYBLOCK_BUNDLE=str(bundle_path))
    assert (done.returncode, done.stdout) == (code, b"")
    assert problem in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_the_passage_of_a_pdf_is_found_on_its_page_and_in_its_text(fork: Run, folder: Path) -> None:
    notice = "The tenant may end the lease early with two months notice in writing."
    filling = [f"Clause {number} is about the garden and its hedges." for number in range(30)]
    (folder / "contract.pdf").write_bytes(pdf([filling, filling[:20], [*filling[:5], notice, *filling[5:10]], filling]))
    (folder / "scan.pdf").write_bytes(pdf([[]]))
    done = fork(["rerank", QUERY, "contract.pdf", "scan.pdf", "--json", "--blocks", "1"], folder)
    refused = "keyblock: scan.pdf: is a PDF, skipped: it holds no text: run OCR first (ocrmypdf)\n"
    assert (done.returncode, done.stderr.decode()) == (1, refused)
    (block,) = json.loads(done.stdout)["blocks"]
    assert block["page"] == 3
    assert notice in block["text"]
    text = fork(["text", "contract.pdf"], folder).stdout.decode()
    assert text[block["start"] : block["end"]] == block["text"]


def test_texts_are_printed_and_files_without_text_are_reported(fork: Run, folder: Path) -> None:
    (folder / "a.html").write_bytes(b"<h1>Danube</h1>It rises.")
    (folder / "b.bin").write_bytes(b"\x7fELF\0\0")
    done = fork(["text", "a.html", "b.bin", "nobody"], folder)
    assert (done.returncode, done.stdout) == (1, b"# Danube\n\nIt rises.")
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [("KEYBLOCK_BUNDLE", "no/such/bundle", "no/such/bundle: does not exist"), ("KEYBLOCK_THREADS", "many", "KEYBLOCK_THREADS: ")],
)
def test_settings_of_the_environment(fork: Run, folder: Path, variable: str, value: str, problem: str) -> None:
    done = fork(["rerank", QUERY, "gym.txt"], folder, **{variable: value})
    assert done.returncode == 1
    assert done.stderr.decode().startswith(f"keyblock: {problem}")


def test_a_reader_that_has_had_enough(folder: Path, bundle_path: Path) -> None:
    """The answer is larger than what the pipe holds."""
    (folder / "many.jsonl").write_text("\n".join(json.dumps({"text": f"{n} lease. " * 60}) for n in range(40)))
    process = subprocess.Popen(
        [*COMMAND, "rerank", QUERY, "many.jsonl", "-n", "0", "--json", "--bundle", bundle_path],
        cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, pipesize=4096,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b'{"rank":1')
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(PATIENCE) == 141


def test_an_interruption_is_quiet(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    process = subprocess.Popen([*COMMAND, "rerank", QUERY, "pipe"], cwd=folder, env=environment(), stderr=subprocess.PIPE)
    with open(folder / "pipe", "wb"):  # it is there once the command reads
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (130, b"")


def test_a_service_is_called_without_the_packages_that_run_a_bundle(folder: Path, running: Service) -> None:
    blocked = "import sys; sys.modules['onnxruntime'] = sys.modules['prometheus_client'] = None"
    program = f"{blocked}; from service.command.main import main; sys.exit(main())"
    here, there = (
        run([sys.executable, "-c", program, "rerank", QUERY, "all.jsonl", "--json", *url], folder)
        for url in ([], ["--url", running.url])
    )
    assert (here.returncode, here.stdout) == (1, b"")
    advice = "keyblock: to rank in this process, install the extras cpu (or gpu) and serve, or name a running"
    assert here.stderr.decode().startswith(advice)
    assert (there.returncode, len(there.stdout.splitlines())) == (0, 3)


def test_without_the_extra_it_is_one_line(tmp_path: Path) -> None:
    blocked = "import sys; sys.modules['httpx'] = None; from service.command.__main__ import main; sys.exit(main())"
    done = run([sys.executable, "-c", blocked], tmp_path)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode().startswith("keyblock: install the extra cli: pip install 'keyblock[cli]' (")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("rerank notice gym.txt --json >/dev/full", "keyblock: cannot write: No space left on device"),
        ("rerank notice gym.txt --json >&-", "keyblock: there is nowhere to write to: standard output is closed"),
        ("rerank notice gym.txt --json - <&-", "keyblock: -: Bad file descriptor"),
        ("text gym.txt >/dev/full", "keyblock: cannot write: No space left on device"),
        ("text gym.txt >&-", "keyblock: there is nowhere to write to: standard output is closed"),
    ],
)
def test_broken_streams_are_one_line(folder: Path, bundle_path: Path, arguments: str, problem: str) -> None:
    done = run(["sh", "-c", f"KEYBLOCK_BUNDLE={shlex.quote(str(bundle_path))} {shlex.join(COMMAND)} {arguments}"], folder)
    assert (done.returncode, done.stderr.decode()) == (1, f"{problem}\n")


def test_files_may_stand_between_options() -> None:
    options = read_arguments(["rerank", "-r", "query", "a", "b", "--json", "c", "-n", "3", "-"])
    assert (options.files, options.query, options.top, options.recursive) == (["a", "b", "c", "-"], "query", 3, True)
