"""A private Redis Cluster on this machine, for tests and benchmarks. Its servers can be killed, paused and started."""

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.retry import Retry

from tests.support.ports import free_port
from tests.support.redis_server import Certificates, program

PATIENCE = 60.0  # longest wait in seconds; a failover takes three
SILENT_MILLISECONDS = 2000  # a server that is silent for so long is replaced
FULL_COVERAGE = ("--cluster-require-full-coverage", "no")  # the other slots stay available when a server and its replica are away


class RedisCluster:
    """Servers on ports of 127.0.0.1, each with its own folder; a killed server has its data again after a restart.

    Args:
        folder: holds the servers' folders.
        masters: the number of servers with slots.
        replicas: the number of replicas of each master.
        password: the password of every server; "" for none.
        certificates: certificates for TLS; None: without TLS.
        silent: milliseconds of silence after which a server is replaced.

    Attributes:
        ports: the ports of all servers.
    """

    def __init__(
        self,
        folder: Path,
        masters: int = 3,
        replicas: int = 1,
        password: str = "",
        certificates: Certificates | None = None,
        silent: int = SILENT_MILLISECONDS,
    ) -> None:
        self.ports = [free_port() for _ in range(masters * (1 + replicas))]
        self._buses = {port: free_port() for port in self.ports}
        self._folder, self._replicas, self._password, self._certificates = folder, replicas, password, certificates
        self._silent = silent
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        """The cluster's URL for KEYBLOCK_STORE."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        if self._certificates is None:
            return f"redis+cluster://{hosts}"
        return f"rediss+cluster://{hosts}?ssl_ca_certs={self._certificates.authority}"

    def create(self) -> None:
        """Start the servers and form a cluster. Raises MissingRedisError."""
        for port in self.ports:
            self.start(port)
        servers = [f"127.0.0.1:{port}" for port in self.ports]
        self.command("create", *servers, "--cluster-replicas", str(self._replicas))
        until(self.whole)

    def start(self, port: int) -> None:
        """Start a server that is not running. Raises MissingRedisError."""
        folder = self._folder / str(port)
        folder.mkdir(exist_ok=True)
        listens = (
            ("--port", str(port)) if self._certificates is None else (*self._certificates.of_server(port), "--tls-cluster", "yes")
        )
        place = (*listens, "--bind", "127.0.0.1", "--dir", str(folder), "--cluster-port", str(self._buses[port]))
        cluster = ("--cluster-enabled", "yes", "--cluster-node-timeout", str(self._silent), *FULL_COVERAGE)
        storage = ("--save", "", "--appendonly", "yes", "--repl-diskless-sync-delay", "0")
        passwords = ("--requirepass", self._password, "--masterauth", self._password)
        words = [program("server"), *place, *cluster, *storage, *passwords]
        self._processes[port] = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        until(lambda: self.ask(port, "PING") is not None)

    def replace_after(self, silent: int) -> None:
        """Set the milliseconds of silence after which a server is replaced."""
        self._silent = silent
        for port in self._processes:
            self.ask(port, "CONFIG SET", "cluster-node-timeout", silent)

    def kill(self, port: int) -> None:
        """Kill a server with SIGKILL."""
        process = self._processes.pop(port)
        process.kill()
        process.wait()

    def pause(self, port: int) -> None:
        """Pause a server: it accepts connections and does not answer."""
        self._processes[port].send_signal(signal.SIGSTOP)

    def go_on(self, port: int) -> None:
        """Resume a paused server."""
        self._processes[port].send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Kill all running servers."""
        for port in list(self._processes):
            self.kill(port)

    def command(self, name: str, *words: str) -> None:
        """Run a command of `redis-cli --cluster`. Raises RuntimeError if it fails, and MissingRedisError."""
        tls = () if self._certificates is None else ("--tls", "--cacert", str(self._certificates.authority))
        line = [program("cli"), *tls, "--cluster", name, *words, "--cluster-yes"]
        done = subprocess.run(line, check=False, capture_output=True, text=True, timeout=PATIENCE)
        if done.returncode:
            raise RuntimeError(f"redis-cli --cluster {name} failed: {done.stdout[-300:]}{done.stderr[-300:]}")

    def ask(self, port: int, *words: str | bytes | int) -> object:
        """A server's answer to a command; None if it does not answer."""
        tls = {} if self._certificates is None else {"ssl": True, "ssl_ca_certs": str(self._certificates.authority)}
        own: dict[str, Any] = {"host": "127.0.0.1", "socket_timeout": 1.0, "retry": Retry(NoBackoff(), 0), **tls}
        with redis.Redis(port=port, password=self._password, **own) as client:
            try:
                return client.execute_command(*words)
            except (redis.ConnectionError, redis.TimeoutError):
                return None

    def masters(self) -> dict[int, list[int]]:
        """Ports of the masters that answer, each with the ports of its synchronised replicas."""
        roles = {port: self.ask(port, "ROLE") for port in self.ports if port in self._processes}
        lists = {port: role for port, role in roles.items() if isinstance(role, list)}
        return {
            port: [other for other, (name, *rest) in lists.items() if name == b"slave" and rest[1:3] == [port, b"connected"]]
            for port, (name, *_) in lists.items()
            if name == b"master"
        }

    def owner(self, key: bytes) -> int:
        """The port of the master that owns a key, by the first server that answers."""
        slot = key_slot(key)
        ranges: Any = next(answer for port in self.ports if (answer := self.ask(port, "CLUSTER SLOTS")))
        return next(int(port) for start, end, (_, port, *_), *_ in ranges if start <= slot <= end)

    def whole(self) -> bool:
        """Whether every slot has a master, every server is a master or replica, and all servers agree."""
        masters = self.masters()
        return (
            all("'cluster_state': 'ok'" in str(self.ask(port, "CLUSTER INFO")) for port in self.ports)
            and sum(map(len, masters.values())) == len(self.ports) - len(masters)
            and len(masters) * (1 + self._replicas) == len(self.ports)
        )

    def reshard(self, giver: int, taker: int, slots: int) -> None:
        """Move `slots` slots with their keys from one master to another."""
        ends = ("--cluster-from", self.identity(giver), "--cluster-to", self.identity(taker))
        self.command("reshard", f"127.0.0.1:{giver}", *ends, "--cluster-slots", str(slots))

    def mend(self) -> None:
        """Start the killed servers, and wait until the cluster is whole; the masters may be others than before."""
        for port in self.ports:
            if port not in self._processes:
                self.start(port)
            self.go_on(port)
        until(self.whole)

    def identity(self, port: int) -> str:
        """A server's id in the cluster."""
        return str(self.ask(port, "CLUSTER MYID"), "ascii")


def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds. Raises TimeoutError after PATIENCE."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not so after {PATIENCE:g} s")
        time.sleep(0.05)
