"""Who has which slot: what a URL says, clusters that are away, protected, or none, and maps that contradict each other."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.crc import key_slot
from redis.exceptions import ConnectionError, MovedError

from service.store.base import StoreUnavailableError
from service.store.cluster_map import Address, ClusterMap, Server, parsed
from service.store.redis_cluster import RedisClusterStore
from tests.service.store.redis_server import RedisServer, need_redis
from tests.support.ports import free_port
from tests.support.redis_cluster import RedisCluster, until


@pytest.fixture
def servers(redis_cluster: RedisCluster) -> Iterator[ClusterMap]:
    servers = ClusterMap(redis_cluster.url)
    yield servers
    servers.close()


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[RedisCluster]:
    """A cluster of one server, not started."""
    need_redis()
    cluster = RedisCluster(tmp_path, masters=1, replicas=0, password="right")
    yield cluster
    cluster.close()


@pytest.mark.parametrize(
    ("url", "addresses", "options"),
    [
        ("redis+cluster://a", [("a", 6379)], {}),
        ("redis+cluster://a:1,b:2", [("a", 1), ("b", 2)], {}),
        ("redis+cluster://u:p%40ss,w@a:1,[::1]:2/0", [("a", 1), ("::1", 2)], {"username": "u", "password": "p@ss,w", "db": 0}),
        ("redis+cluster://:p@a,b:2?socket_timeout=3", [("a", 6379), ("b", 2)], {"password": "p", "socket_timeout": 3.0}),
    ],
)
def test_a_url_names_servers_and_how_to_reach_them(url: str, addresses: list[tuple[str, int]], options: dict[str, object]) -> None:
    assert parsed(url) == (addresses, options)


def test_tls_is_a_scheme_of_its_own() -> None:
    _, options = parsed("rediss+cluster://a")
    assert options["connection_class"].__name__ == "SSLConnection"
    assert Server(Address("a", 1), options).client.connection_pool.connection_class.__name__ == "BoundedSSLConnection"


@pytest.mark.parametrize(
    "rest", ["", "host:port", "a:1,,b:2", ":secret/part@host:6379", "a:1,b:2/3", "a?socket_timeout=soon", "a:1:2", "a:99999"]
)
def test_what_is_no_url_is_one_line_without_the_password(rest: str) -> None:
    with pytest.raises(StoreUnavailableError, match=r"is not one of a Redis Cluster: give redis\+cluster://") as raised:
        parsed(f"redis+cluster://{rest}")
    assert "secret" not in str(raised.value)


@given(identity=st.text(st.characters(codec="utf-8"), max_size=30))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_slots_are_those_of_the_servers(servers: ClusterMap, redis_cluster: RedisCluster, identity: str) -> None:
    key = identity.encode()
    assert key_slot(key) == servers.masters()[0].client.execute_command("CLUSTER KEYSLOT", key)


def test_each_slot_has_the_owner_the_cluster_names(servers: ClusterMap, redis_cluster: RedisCluster) -> None:
    assert {one.address.port for one in servers.masters()} == set(redis_cluster.masters())
    for key in (b"a", b"b", b"c", b"d"):
        owner = servers.owner(key)
        assert owner is not None
        assert owner.address.port == redis_cluster.owner(key)


def test_one_server_that_answers_is_enough(redis_cluster: RedisCluster) -> None:
    url = f"redis+cluster://127.0.0.1:{free_port()},127.0.0.1:{redis_cluster.ports[-1]}"
    servers = ClusterMap(url)
    assert len(servers.masters()) == 3
    servers.close()


def test_redirections_are_believed_until_the_map_is_read_again(servers: ClusterMap) -> None:
    """Also where no host is named, which is the host that was asked."""
    first, second, *_ = servers.masters()
    assert servers.redirected(MovedError(f"7 {second.address}"), first) is second
    assert servers.redirected(MovedError("7 :7777"), first).address == Address("127.0.0.1", 7777)
    slot = key_slot(b"a")
    owner = servers.owner(b"a")
    wrong = next(one for one in servers.masters() if one is not owner)
    servers.moved(slot, wrong)
    until(lambda: servers.owner(b"a") is owner)  # the cluster itself is asked soon, and knows better


def test_a_failed_server_is_skipped_until_it_answers(servers: ClusterMap, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    server = servers.masters()[0]
    for _ in range(2):
        servers.failed(server, ConnectionError("a\nb"))
    assert caplog.messages[0] == f"{server.address} of the store's cluster does not answer: a b"
    until(lambda: not server.away)
    assert f"{server.address} of the store's cluster answers again" in caplog.messages


def test_servers_that_have_left_are_forgotten(servers: ClusterMap) -> None:
    servers.redirected(MovedError("7 127.0.0.1:7777"), servers.masters()[0])
    assert Address("127.0.0.1", 7777) in servers._servers
    servers._refresh()
    assert Address("127.0.0.1", 7777) not in servers._servers


def test_the_cluster_may_be_down_at_the_start(own_cluster: RedisCluster, caplog: pytest.LogCaptureFixture) -> None:
    url = own_cluster.url.replace("//", "//:right@")
    store = RedisClusterStore(url, replicas=0)
    assert "the store's cluster does not answer" in caplog.text
    with pytest.raises(StoreUnavailableError, match="no server of the cluster could be reached"):
        store.size()
    own_cluster.start(own_cluster.ports[0])
    own_cluster.ask(own_cluster.ports[0], "CLUSTER ADDSLOTSRANGE", 0, 16383)
    until(lambda: store.get_many("s", ["a"]) == [None])
    store.close()


@pytest.mark.parametrize("login", ["", ":wrong@", "nobody:wrong@"])
def test_a_wrong_password_is_one_line_without_it(own_cluster: RedisCluster, login: str) -> None:
    own_cluster.start(own_cluster.ports[0])
    with pytest.raises(StoreUnavailableError, match="Redis refuses the store's user and password") as raised:
        ClusterMap(own_cluster.url.replace("//", f"//{login}"))
    assert "wrong" not in str(raised.value)


def test_a_server_of_no_cluster_is_an_error(redis_server: RedisServer) -> None:
    with pytest.raises(StoreUnavailableError, match=r"is of no Redis Cluster .*: give redis:// for one server alone"):
        ClusterMap(redis_server.url.replace("redis://", "redis+cluster://"))
