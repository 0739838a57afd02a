"""A cluster: what a URL says, clusters that are away, protected, or none, and servers that contradict each other."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.store.base import StoreUnavailableError
from service.store.redis_cluster import Cluster, RedisClusterStore, parsed
from tests.service.store.redis_server import RedisServer, need_redis
from tests.support.redis_cluster import RedisCluster, until


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[RedisCluster]:
    """A cluster of one server, not started."""
    need_redis()
    cluster = RedisCluster(tmp_path, masters=1, replicas=0, password="right")
    yield cluster
    cluster.close()


@pytest.mark.parametrize(
    ("url", "first", "others"),
    [
        ("redis+cluster://a", "redis://a", []),
        ("redis+cluster://a:1,b:2", "redis://a:1", [("b", 2)]),
        ("redis+cluster://u:p%40ss,w@a:1,[::1]:2/0", "redis://u:p%40ss,w@a:1/0", [("::1", 2)]),
        ("rediss+cluster://:p@a,b?socket_timeout=3", "rediss://:p@a?socket_timeout=3", [("b", 6379)]),
    ],
)
def test_a_url_names_servers_and_how_to_reach_them(url: str, first: str, others: list[tuple[str, int]]) -> None:
    assert parsed(url) == (first, others)


@pytest.mark.parametrize(
    "rest", ["", "host:port", "a:1,,b:2", ":secret/part@host:6379", "a:1,b:2/3", "a?socket_timeout=soon", "a:1:2", "a:99999"]
)
def test_what_is_no_url_is_one_line_without_the_password(rest: str) -> None:
    with pytest.raises(StoreUnavailableError, match=r"is not one of a Redis Cluster: give redis\+cluster://") as raised:
        parsed(f"redis+cluster://{rest}")
    assert "secret" not in str(raised.value)


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


@pytest.mark.parametrize("login", ["", "nobody:wrong@"])
def test_a_wrong_password_is_one_line_without_it(own_cluster: RedisCluster, login: str) -> None:
    own_cluster.start(own_cluster.ports[0])
    with pytest.raises(StoreUnavailableError, match="Redis refuses the store's user and password") as raised:
        Cluster(own_cluster.url.replace("//", f"//{login}"))
    assert "wrong" not in str(raised.value)


def test_a_server_of_no_cluster_is_an_error(redis_server: RedisServer) -> None:
    with pytest.raises(StoreUnavailableError, match=r"is of no Redis Cluster .*: give redis:// for one server alone"):
        Cluster(redis_server.url.replace("redis://", "redis+cluster://"))
