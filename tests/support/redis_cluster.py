"""A private Redis Cluster on this machine. Its servers can be killed and started."""

import subprocess
from pathlib import Path
from typing import Any

from redis.crc import key_slot

from tests.service.store.redis_server import Certificates, RedisServer, need_redis, until
from tests.support.ports import free_port

SILENT_MILLISECONDS = 2000  # a server that is silent for so long is replaced
FULL_COVERAGE = ("--cluster-require-full-coverage", "no")  # the other slots stay available when a server and its replica are away


class RedisCluster:
    """Servers on ports of 127.0.0.1, each with its own folder.

    Args:
        folder: holds the servers' folders.
        masters: the number of servers with slots.
        replicas: the number of replicas of each master.
        password: the password of every server; "" for none.
        certificates: certificates for TLS; None: without TLS.
        silent: milliseconds of silence after which a server is replaced.

    Attributes:
        servers: by their port.
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
        self._replicas, self._certificates, self._silent = replicas, certificates, silent
        options = ("--cluster-enabled", "yes", *FULL_COVERAGE, "--appendfsync", "everysec", "--repl-diskless-sync-delay", "0")
        if certificates is not None:
            options += ("--tls-cluster", "yes")
        self.servers: dict[int, RedisServer] = {}
        for number in range(masters * (1 + replicas)):
            own = folder / str(number)
            own.mkdir()
            bus = ("--cluster-port", str(free_port()))
            server = RedisServer(own, *options, *bus, password=password, certificates=certificates)
            self.servers[server.port] = server
        self.ports = list(self.servers)

    @property
    def url(self) -> str:
        """The cluster's URL for KEYBLOCK_STORE."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        if self._certificates is None:
            return f"redis+cluster://{hosts}"
        return f"rediss+cluster://{hosts}?ssl_ca_certs={self._certificates.authority}"

    def create(self) -> None:
        """Start the servers and form a cluster."""
        for port in self.ports:
            self.start(port)
        servers = [f"127.0.0.1:{port}" for port in self.ports]
        self.command("create", *servers, "--cluster-replicas", str(self._replicas))
        until(self.whole)

    def start(self, port: int) -> None:
        """Start a server that is not running."""
        self.servers[port].start("--cluster-node-timeout", str(self._silent))

    def replace_after(self, silent: int) -> None:
        """Set the milliseconds of silence after which a server is replaced."""
        self._silent = silent
        for port in self.ports:
            self.ask(port, "CONFIG SET", "cluster-node-timeout", silent)

    def kill(self, port: int) -> None:
        """Kill a server with SIGKILL."""
        self.servers[port].stop()

    def close(self) -> None:
        """Kill all running servers."""
        for port in self.ports:
            self.kill(port)

    def command(self, name: str, *words: str) -> None:
        """Run a command of `redis-cli --cluster`. Raises RuntimeError if it fails."""
        tls = () if self._certificates is None else ("--tls", "--cacert", str(self._certificates.authority))
        line = [need_redis("cli"), *tls, "--cluster", name, *words, "--cluster-yes"]
        done = subprocess.run(line, check=False, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise RuntimeError(f"redis-cli --cluster {name} failed: {done.stdout[-300:]}{done.stderr[-300:]}")

    def ask(self, port: int, *words: str | bytes | int) -> object:
        """A server's answer to a command; None if it does not answer."""
        return self.servers[port].ask(*words)

    def masters(self) -> dict[int, list[int]]:
        """Ports of the masters that answer, each with the ports of its synchronised replicas."""
        roles = {port: self.ask(port, "ROLE") for port in self.ports}
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
        for port, server in self.servers.items():
            if not server.running:
                self.start(port)
        until(self.whole)

    def identity(self, port: int) -> str:
        """A server's id in the cluster."""
        return str(self.ask(port, "CLUSTER MYID"), "ascii")
