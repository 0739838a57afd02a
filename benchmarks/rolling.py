"""Do clients notice when replicas are replaced or die? Sends load to two replicas behind nginx, and checks each answer.

    python -m benchmarks.rolling [--clients 4] [--pause 5] [--bundle models/default]

Uses the installed nginx, with examples/balancer/nginx.conf on other ports. During the load each replica is replaced as in a rolling
update (a new one is ready before an old one gets SIGTERM), then one is killed, then another takes its place. Requests are small or
1.2 MB, over kept and over new connections. An answer is right if it is 200 with the scores of an idle service, to 1e-4 in fp32.
Exits with 1 if an answer was wrong, if a stopped replica did not exit with 0, or if nginx never had to try a second replica, since
then nothing was shown.
"""

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np

from benchmarks.event_loop import free_port
from benchmarks.performance.service import Service, ServiceError, make_body
from benchmarks.performance.texts import Source, invented

ROOT = Path(__file__).resolve().parent.parent
CONFIGURATION = ROOT / "examples" / "balancer" / "nginx.conf"
SHAPES = ((8, 150),) * 4 + ((8, 24_000),)  # documents, words: four small requests, and one of 1.2 MB
PLACES = 3
TOLERANCE = 1e-4
PATIENT_MS = 100_000  # no refusals of overload here: benchmarks.soak measures them
FRESH = 2  # every second client makes a connection for each request
MAIN = """daemon off;
user root; # where root starts it, its workers may read what lies in root's folder; else it means nothing
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{
    log_format asked '$upstream_status';
    access_log {folder}/access.log asked;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{site}
}}
"""


@dataclass(frozen=True)
class Known:
    """A request and the scores of an idle service."""

    body: bytes
    scores: dict[int, float]


@dataclass
class Seen:
    """The clients' results, by phase."""

    phase: str = "undisturbed"
    milliseconds: dict[str, list[float]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def right(self, seconds: float) -> None:
        """Count a right answer."""
        self.milliseconds.setdefault(self.phase, []).append(1e3 * seconds)


class Balancer:
    """A running nginx with the example's configuration on free ports; stopped when the `with` block ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port, *self.places = (free_port() for _ in range(1 + PLACES))
        (folder / "nginx.conf").write_text(MAIN.format(folder=folder, site=self.site()), encoding="utf-8")
        self._process = subprocess.Popen([nginx(), "-p", str(folder), "-c", str(folder / "nginx.conf")], stderr=subprocess.DEVNULL)

    def site(self) -> str:
        """The example's configuration with this balancer's ports."""
        ports = {f"127.0.0.1:{8000 + n}": f"127.0.0.1:{port}" for n, port in enumerate([self.port, *self.places])}
        return re.sub(r"127\.0\.0\.1:800\d", lambda found: ports[found[0]], CONFIGURATION.read_text(encoding="utf-8"))

    def asked_again(self) -> int:
        """How many requests nginx sent to more than one replica."""
        return sum("," in line for line in (self._folder / "access.log").read_text(encoding="utf-8").splitlines())

    def __enter__(self) -> "Balancer":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)


def nginx() -> str:
    """The path of nginx. Raises SystemExit if it is not installed."""
    found = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:" + (os.environ.get("PATH", "")))
    if found is None:
        raise SystemExit("nginx is not installed (Debian: apt install nginx-light)")
    return found


class Replicas:
    """The services, each in one of the balancer's places."""

    def __init__(self, folder: Path, places: list[int], bundle: Path) -> None:
        self._folder, self._bundle, self._places = folder, bundle, places
        self._at: dict[int, Service] = {}
        self._started = 0
        self.codes: list[int] = []

    async def start(self) -> Service:
        """Start a replica in a free place. Returns when it is ready."""
        place = next(port for port in self._places if port not in self._at)
        self._started += 1
        log = self._folder / f"service-{self._started}.log"
        made = await asyncio.to_thread(Service, 1, log, port=place, bundle=self._bundle, precision="fp32", max_wait_ms=PATIENT_MS)
        self._at[place] = made
        return made

    async def drain(self, service: Service) -> None:
        """Send SIGTERM to a replica and wait until it has ended."""
        self.codes.append(await asyncio.to_thread(service.stop))
        del self._at[service.port]

    def kill(self, service: Service) -> None:
        """Kill a replica with SIGKILL."""
        service.kill()
        del self._at[service.port]

    def end(self) -> None:
        """Stop all running replicas."""
        for service in self._at.values():
            service.stop()


def learn(service: Service, source: Source, documents: int, words: int) -> Known:
    """A request, and an idle service's answer."""
    request = source.request(documents, words)
    return Known(make_body(request), dict(enumerate(service.rank(request).scores)))


async def disturb(replicas: Replicas, running: list[Service], seen: Seen, pause: float) -> None:
    """Run the rolling update, the failure and the recovery, each as a phase."""
    await asyncio.sleep(pause)
    seen.phase = "rolling update"
    for old in list(running):
        running.append(await replicas.start())
        running.remove(old)
        await replicas.drain(old)
    seen.phase = "after the update"
    await asyncio.sleep(pause)
    seen.phase = "one killed"
    replicas.kill(running.pop())
    await asyncio.sleep(pause)
    seen.phase = "another takes its place"
    running.append(await replicas.start())
    await asyncio.sleep(pause)


async def ask(client: httpx.AsyncClient, known: Known, seen: Seen) -> None:
    """Send one request and check its answer."""
    started = time.perf_counter()
    try:
        response = await client.post("/rerank", content=known.body)
    except httpx.TransportError as error:
        seen.wrong.append(f"{seen.phase}: {type(error).__name__} {error}")
        return
    if problem := wrong(response, known):
        seen.wrong.append(f"{seen.phase}: {problem}")
    else:
        seen.right(time.perf_counter() - started)


def wrong(response: httpx.Response, known: Known) -> str | None:
    """How an answer differs from an idle service's; None if it does not."""
    if response.status_code != 200:
        return f"{response.status_code} {response.text[:200]}"
    scores = {result["index"]: result["relevance_score"] for result in response.json()["results"]}
    if scores.keys() != known.scores.keys():
        return f"{len(scores)} results of {len(known.scores)}"
    off = max(abs(scores[index] - score) for index, score in known.scores.items())
    return f"scores off by {off:.2g}" if off > TOLERANCE else None


@asynccontextmanager
async def load(url: str, pool: list[Known], clients: int, seen: Seen) -> AsyncIterator[None]:
    """Run clients that send one request after the other until the block ends; requests under way are finished."""
    going = True

    async def client(number: int) -> None:
        kept = httpx.Limits(max_keepalive_connections=0 if number % FRESH else 1)
        async with httpx.AsyncClient(base_url=url, timeout=120, limits=kept) as session:
            turn = number
            while going:
                await ask(session, pool[turn % len(pool)], seen)
                turn += 1

    tasks = [asyncio.create_task(client(number)) for number in range(clients)]
    try:
        yield
    finally:
        going = False
        await asyncio.gather(*tasks)


async def run(options: argparse.Namespace, folder: Path, say: Callable[[str], None] = print) -> list[str]:
    """Run the benchmark. Returns what was wrong."""
    seen = Seen()
    with Balancer(folder) as balancer:
        replicas = Replicas(folder, balancer.places, options.bundle)
        try:
            running = [await replicas.start(), await replicas.start()]
            source = invented(options.bundle / "tokenizer.json")
            pool = [await asyncio.to_thread(learn, running[0], source, *shape) for shape in SHAPES]
            async with load(f"http://127.0.0.1:{balancer.port}", pool, options.clients, seen):
                await disturb(replicas, running, seen, options.pause)
        finally:
            replicas.end()
        report(seen, balancer.asked_again(), replicas.codes, say)
    return seen.wrong


def report(seen: Seen, again: int, codes: list[int], say: Callable[[str], None]) -> None:
    """Print the results, and check what concerns the whole run."""
    if not again:
        seen.wrong.append("no request was sent to a second replica: nothing was shown")
    if any(codes):
        seen.wrong.append(f"replicas that were asked to end ended with {codes}, not 0")
    for phase, values in seen.milliseconds.items():
        p50, p99 = np.quantile(values, (0.5, 0.99))
        say(f"{phase}: {len(values):,} right answers, p50 {p50:,.0f} ms, p99 {p99:,.0f} ms, most {max(values):,.0f} ms")
    say(f"nginx asked a second replica {again} times; replicas asked to end ended with {codes}")
    say("\n".join(f"WRONG ({n}): {problem}" for problem, n in Counter(seen.wrong).most_common(20)) or "no client saw an error")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--clients", type=int, default=4)
    made.add_argument("--pause", type=float, default=5, help="seconds of load before, between and after what happens")
    made.add_argument("--bundle", type=Path, default=ROOT / "models" / "default")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark. Returns the exit code."""
    options = parser().parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        try:
            return 1 if asyncio.run(run(options, Path(folder))) else 0
        except ServiceError as error:
            print(error, file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main())
