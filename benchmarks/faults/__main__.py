"""python -m benchmarks.faults: see the package."""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx

import benchmarks.faults
from benchmarks.faults import answers, bodies, connections, disks, files, model, pages, processes, stores
from benchmarks.faults.drill import NotHeldError, SkipError
from benchmarks.performance.report import put
from tests.support.redis_server import MissingRedisError
from tests.support.serving import ServiceError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "results" / "faults.md"
MARK = "<!-- what happened: python -m benchmarks.faults --publish writes from here -->"
FAULTS: tuple[Callable[[Path], str], ...] = (
    model.one_input_fails,
    model.thread_killed,
    model.model_hangs,
    model.out_of_memory,
    stores.directory_full,
    stores.directory_read_only,
    stores.disk_full,
    disks.new_store_on_full_disk,
    disks.disk_gets_full,
    stores.killed_while_writing,
    stores.redis_stopped,
    processes.bundle_replaced_by_garbage,
    processes.terminated_under_load,
    processes.killed_under_load,
    processes.clock_jumps,
    connections.idle_connections,
    connections.slow_clients,
    connections.slow_uploads,
    connections.endless_head,
    connections.url_in_pieces,
    connections.tiny_chunks,
    connections.endless_trailers,
    connections.requests_at_once,
    connections.unread_answers,
    connections.heads_without_bodies,
    connections.heads_of_uploads,
    connections.kept_from_ranking,
    connections.ambiguous_requests,
    pages.foreign_pages,
    files.files_on_the_page,
    files.file_in_the_terminal,
    bodies.stored_many_times,
    bodies.line_of_lists,
    bodies.words_of_100_letters,
    bodies.errors_without_end,
    bodies.options_of_another_size,
    bodies.tiny_frames,
    answers.headings_of_many_spans,
    answers.small_requests_that_prune,
    answers.terminated_while_nobody_waits,
    answers.emoji_and_joiners,
    answers.freed_memory,
    answers.largest_requests,
)


def name_of(fault: Callable[[Path], str]) -> str:
    """The name of a fault on the command line."""
    return fault.__name__.replace("_", "-")


def main(options: argparse.Namespace) -> int:
    """Do each fault and print what happened; returns the exit code."""
    rows, bad = [], 0
    for fault in FAULTS:
        if options.only and name_of(fault) not in options.only:
            continue
        held, happened = done(fault)
        bad += not held
        rows.append(f"| {(fault.__doc__ or '').strip().rstrip('.')} | {happened} | `{name_of(fault)}` |")
        print(rows[-1], flush=True)
    if options.publish and not bad:
        put(PAGE, "\n".join(["| fault | what happened | |", "|---|---|---|", *rows]), MARK)
    return 1 if bad else 0


def done(fault: Callable[[Path], str]) -> tuple[bool, str]:
    """Whether everything held under a fault, and what happened."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            return True, fault(Path(folder))
        except (SkipError, MissingRedisError) as why:
            return True, f"not done here: {why}"
        except (NotHeldError, ServiceError, httpx.HTTPError) as error:
            return False, f"**DID NOT HOLD** after {time.monotonic() - started:.0f} s: {error}"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        "python -m benchmarks.faults", description=benchmarks.faults.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--only", nargs="+", choices=[name_of(fault) for fault in FAULTS], metavar="NAME", help="these faults")
    made.add_argument("--publish", action="store_true", help="put the table into docs/results/faults.md")
    return made


if __name__ == "__main__":
    sys.exit(main(parser().parse_args()))
