"""What do the dashboards show? Serves, loads, scrapes with a real Prometheus, and draws every panel into a picture.

    python -m benchmarks.dashboard [--minutes 6] [--replicas 2] [--bundle models/default] [--out docs/images]

Two replicas share the machine. The load is quiet at first, then busy, then more than they can do, then quiet again. Needs
`prometheus` (Debian: apt install prometheus).
"""

import argparse
import asyncio
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from PIL import Image

from benchmarks.dashboard.load import Load, Phase, Size
from benchmarks.dashboard.picture import draw
from benchmarks.dashboard.prometheus import MISSING, Prometheus, installed
from benchmarks.performance.service import Service
from benchmarks.performance.texts import invented
from k8s.monitoring.boards import BOARDS
from k8s.monitoring.rules import groups
from keyblock.runtime.cpus import default_threads

ROOT = Path(__file__).resolve().parents[2]
SCRAPE_SECONDS = 2
PHASES = (Phase(0.2, 2, 0.5), Phase(0.3, 3, 0.05), Phase(0.3, 24), Phase(0.2, 2, 0.5))  # of the whole time
LIMITS = {
    "max_wait_ms": 1500,
    "max_requests_in_flight": 8,
    "cache_bytes": 8 << 20,
    "score_cache_bytes": 1 << 20,
}  # a crowd of 24 is refused in part


def main(options: argparse.Namespace) -> int:
    """Run it all; the exit code."""
    if not installed():
        print(MISSING, file=sys.stderr)
        return 1
    threads = max(default_threads() // options.replicas, 1)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        place = Path(folder)
        services = []
        for number in range(options.replicas):
            settings = {"bundle": options.bundle, "store": place / f"store{number}", **LIMITS}
            services.append(running.enter_context(Service(threads, place / f"{number}.log", **settings)))
        targets = [service.url.removeprefix("http://") for service in services]
        prometheus = running.enter_context(Prometheus(place, targets, groups(), SCRAPE_SECONDS))
        load = Load([service.url for service in services], invented(options.bundle / "tokenizer.json"), Size())
        start = time.time() + 10 * SCRAPE_SECONDS
        seconds = 60 * options.minutes
        asyncio.run(load.run([phase._replace(seconds=phase.seconds * seconds) for phase in PHASES]))
        for board in BOARDS:
            picture = options.out / f"dashboard-{board.name.removeprefix('keyblock-')}.png"
            draw(board, prometheus, start, time.time()).savefig(picture)
            with Image.open(picture) as drawn:
                drawn.convert("RGB").quantize(64, dither=Image.Dither.NONE).save(picture, optimize=True)  # a quarter of the bytes
            print(f"{picture}: {picture.stat().st_size / 1000:.0f} kB")
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--minutes", type=float, default=6)
    made.add_argument("--replicas", type=int, default=2)
    made.add_argument("--bundle", type=Path, default=ROOT / "models" / "default")
    made.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    return made


if __name__ == "__main__":
    sys.exit(main(parser().parse_args()))
