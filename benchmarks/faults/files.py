"""Faults of files: small ones that ask for much memory or a long time."""

import io
import os
import subprocess
import threading
import time
import zipfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

import httpx

from benchmarks.faults.bodies import watched
from benchmarks.faults.drill import drill, must
from tests.support.serving import COMMAND

KEYBLOCK = COMMAND.with_name("keyblock")
PARAGRAPHS = 1_000_000  # 90 KB, packed
AT_ONCE = 4
MOST_MEBIBYTES = 512  # of a process that reads a file
MOST_SECONDS = 60
WORD_XML = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
RELATIONS = """<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1"
Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="word/document.xml"/>
</Relationships>"""


def files_on_the_page(folder: Path) -> str:
    """Four DOCX of 90 KB with a million paragraphs each, at once at the path of the page."""
    attack, statuses = many_paragraphs(PARAGRAPHS), Counter[int]()
    with drill(folder) as it, it.asking() as tally:

        def send() -> None:
            statuses[httpx.post(f"{it.service.url}/playground/text", content=attack, timeout=120).status_code] += 1

        threads = [threading.Thread(target=send) for _ in range(AT_ONCE)]
        started, peak = time.monotonic(), 0.0
        with watched(it) as record:
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                peak = max(peak, _children_mebibytes(it.service.process.pid))
                time.sleep(0.05)
        took = time.monotonic() - started
    answers = ", ".join(f"{number} x {status}" for status, number in sorted(statuses.items()))
    happened = f"{len(attack):,} bytes each: {answers} after {took:.0f} s; the processes that read take {peak:.0f} MiB; {record}"
    must(set(statuses) == {422, 429} and peak < MOST_MEBIBYTES and took < MOST_SECONDS, happened)
    return f"{happened}; other clients: {tally.check()}"


def file_in_the_terminal(folder: Path) -> str:
    """`keyblock text` reads a DOCX of 90 KB with a million paragraphs, and then a small one."""
    for name, paragraphs in (("attack.docx", PARAGRAPHS), ("small.docx", 1)):
        (folder / name).write_bytes(many_paragraphs(paragraphs))
    started = time.monotonic()
    with (folder / "output").open("wb") as output, (folder / "errors").open("wb") as errors:
        process = subprocess.Popen([KEYBLOCK, "text", "attack.docx", "small.docx"], cwd=folder, stdout=output, stderr=errors)
        _, status, used = os.wait4(process.pid, 0)
    took, peak, code = time.monotonic() - started, used.ru_maxrss / 1024, os.waitstatus_to_exitcode(status)
    texts, line = (folder / "output").read_text(), (folder / "errors").read_text().strip()
    happened = f"exit code {code} after {took:.0f} s, at most {peak:.0f} MiB, `{line}`"
    must((code, texts) == (1, "a") and peak < MOST_MEBIBYTES and took < MOST_SECONDS, happened)
    return f"{happened}; and the small one's text"


def many_paragraphs(number: int) -> bytes:
    """A Word document with so many paragraphs of one letter."""
    body = "<w:p><w:r><w:t>a</w:t></w:r></w:p>" * number
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("_rels/.rels", RELATIONS)
        archive.writestr("word/document.xml", f"<w:document {WORD_XML}><w:body>{body}</w:body></w:document>")
    return written.getvalue()


def _children_mebibytes(pid: int) -> float:
    """The memory of all processes that a process has begun, in MiB."""
    found = 0.0
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # it has just ended
            for child in listed.read_text().split():
                lines = Path(f"/proc/{child}/status").read_text().splitlines()
                found += sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
    return found
