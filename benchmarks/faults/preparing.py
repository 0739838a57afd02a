"""What kinds of text cost to prepare: time, memory, and how long the interpreter lock is held.

    python -m benchmarks.faults.preparing [--chars 1000000] [--only KIND ...]

Each kind is prepared in a process of its own, as one document; times are those of the processor.
"""

import argparse
import subprocess
import sys
import threading
import time
from pathlib import Path

KINDS = {
    "prose": "Bridges cross the river, and a boat of 1850 lies under them. ",
    "letters": "a b c d. ",
    "marks": ".,!?;:-()",
    "exclamations": "! ",
    "numbers": "12,345.67 ",
    "long words": "qjxzvkwyqjxzvkwy" * 6 + " ",
    "one word": "a",
    "spaces": " ",
    "line ends": "\n",
    "accents": "été naïve über ",
    "marks on letters": "e\u0301o\u0308 ",
    "Arabic": "العربية نص طويل عن النهر والجسر ",
    "Hindi": "हिन्दी के शब्द। भाषा नदी ",
    "Thai": "ภาษาไทยแม่น้ำและสะพาน ",
    "Korean": "한국어 문장 강 다리 ",
    "Chinese": "東京都は日本の首都である。河川の橋は長い",
    "joiners": "\u200d",
    "emoji": "\U0001f600\u200d\U0001f469\u200d\U0001f692\U0001f602",
    "dropped between marks": "a.\u200b",
    "marks between marks": ".\u0301",
    "emoji and spaces": "\U0001f600\u200d ",
}
MIB = 2**20
LOOK_SECONDS = 0.002


def measured(kind: str, n_chars: int) -> str:
    """A row for one kind; to be called in a process of its own."""
    from keyblock.bundle import load_bundle
    from service.settings import DEFAULT_BUNDLE

    pipeline = load_bundle(DEFAULT_BUNDLE).pipeline
    query = pipeline.prepare_query("river")
    pipeline.prepare_document("warm \U0001f600 up")
    text = (KINDS[kind] * (n_chars // len(KINDS[kind]) + 1))[:n_chars]
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts again
    before, holds, done = _status("VmRSS"), [0.0], threading.Event()
    main = time.pthread_getcpuclockid(threading.get_ident())

    def watch() -> None:
        last = time.clock_gettime(main)
        while not done.wait(LOOK_SECONDS):
            now = time.clock_gettime(main)
            holds.append(now - last)
            last = now

    watcher = threading.Thread(target=watch)
    watcher.start()
    started = time.process_time()
    document = pipeline.prepare_document(text)
    list(pipeline.select_each(query, [document], 128))
    seconds = time.process_time() - started
    done.set()
    watcher.join()
    taken = (_status("VmHWM") - before) / n_chars
    return f"| {kind} | {1e6 * seconds / n_chars:.2f} | {taken:.0f} | {1000 * max(holds):.0f} |"


def _status(field: str) -> int:
    """A value of this process's status, in bytes."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser("python -m benchmarks.faults.preparing", description=__doc__)
    parser.add_argument("--chars", type=int, default=1_000_000, help="characters of each document")
    parser.add_argument("--only", nargs="+", choices=list(KINDS), default=list(KINDS), metavar="KIND", help="these kinds")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.alone:
        sys.setswitchinterval(0.001)  # as the service does
        print(measured(given.only[0], given.chars), flush=True)
        return
    print("| text | us a character | bytes a character | lock held, ms |\n|---|---|---|---|", flush=True)
    for kind in given.only:
        again = [sys.executable, "-m", "benchmarks.faults.preparing", "--alone", "--chars", str(given.chars), "--only", kind]
        subprocess.run(again, check=True)


if __name__ == "__main__":
    main()
