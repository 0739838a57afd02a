"""The autoscaler against hand-worked cases, the queue against theory, and that no request and no second is lost."""

import json
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.scaling.__main__ import cases, draw, line, within
from benchmarks.scaling.autoscaler import (
    COMPONENTS,
    Autoscaler,
    Metric,
    Policy,
    Rules,
    Settings,
    behavior,
    by_mean,
    by_sum,
    quantity,
    range_seconds,
    read,
)
from benchmarks.scaling.balancers import all_rules, hit_share, zipf
from benchmarks.scaling.cluster import Cluster, Pod, hashed, least_outstanding, least_work, round_robin, simulate
from benchmarks.scaling.nodes import Watched
from benchmarks.scaling.sizing import Size, gibibytes, throughput
from benchmarks.scaling.stores import answering_redis, items
from benchmarks.scaling.stores import read as read_from
from benchmarks.scaling.traffic import BURST, CURVE, DAY, HOUR, MIX, RECORD, Requests, Spread, capacity, day, measured, rate, steady
from service.store.base import Item
from service.store.codec import decode
from service.store.redis_store import RedisStore
from tests.k8s.manifests import K8S
from tests.service.store.redis_server import need_redis

DOUBLE = Rules(0, (Policy("Percent", 100, 30),))
ONE_DOWN = Rules(300, (Policy("Pods", 1, 60),))
CPU = Settings(Metric.CPU, 0.7, False, 30, 2, 10, DOUBLE, ONE_DOWN)
QUEUE = Settings(Metric.WAIT, 0.5, True, 60, 2, 10, DOUBLE, ONE_DOWN)


def given_requests(at: Sequence[float], seconds: Sequence[float], until: float = 0) -> Requests:
    return Requests(np.array(at, float), np.array(seconds, float), np.ones(len(at), np.int64), until or max([*at, 0]) + 1)


# ---- what the autoscaler wants


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([0.7, 0.7, 0.7], 3),
        ([1.4, 1.4, 1.4], 6),  # ceil(3 x 2)
        ([0.8, 0.8, 0.8], 4),  # ceil(3 x 1.14)
        ([0.76, 0.76, 0.76], 3),  # 1.086 is within the tolerance
        ([0.77, 0.77, 0.77], 3),  # and so is 1.1 itself
        ([0.35, 0.35, 0.35], 2),  # ceil(3 x 0.5)
        ([0.0, 0.0, 0.0], 0),  # the least is the behavior's matter
        ([1.0, 1.0, None], 3),  # 1.43 of two; with the third as idle 0.95: no longer up, so stay
        ([2.8, 2.8, None], 8),  # ceil(3 x 2.67)
        ([0.35, 0.35, None], 1),  # down: the pods that are ready alone
        ([None, None, None], 3),
    ],
)
def test_a_mean_of_pods(values: list[float | None], wanted: int) -> None:
    assert by_mean(3, values, 0.7) == wanted


@pytest.mark.parametrize(
    ("values", "wanted"), [([0.5, 0.5], 2), ([0.55, 0.55], 2), ([0.6, 0.6], 3), ([10.0, 10.0], 40), ([0.1, None], 1), ([], 0)]
)
def test_a_sum_that_the_target_divides(values: list[float | None], wanted: int) -> None:
    assert by_sum(2, values, 0.5) == wanted


def test_going_up_doubles_in_half_a_minute_and_stops_at_the_most() -> None:
    scaler, replicas, seen = Autoscaler([QUEUE], 2), 2, []
    for now in (15, 30, 45, 60, 75, 90):
        replicas = scaler.decide(now, replicas, [[10.0] * replicas])
        seen.append(replicas)
    assert seen == [4, 4, 8, 8, 10, 10]


def test_going_down_waits_five_minutes_and_takes_a_pod_a_minute() -> None:
    scaler, replicas, seen = Autoscaler([CPU], 6), 6, []
    for now in range(15, 661, 15):
        replicas = scaler.decide(now, replicas, [[0.05] * replicas])
        seen.append((now, replicas))
    assert next(now for now, n in seen if n < 6) == 300  # what there was at the start counts as wanted at 0
    assert [n for now, n in seen if now in (300, 360, 420, 480, 540, 600)] == [5, 4, 3, 2, 2, 2]
    assert [n for now, n in seen if now in (345, 405)] == [5, 4]


def test_a_busy_moment_puts_going_down_off() -> None:
    scaler = Autoscaler([CPU], 4)
    assert scaler.decide(200, 4, [[0.7] * 4]) == 4
    assert scaler.decide(400, 4, [[0.1] * 4]) == 4
    assert scaler.decide(501, 4, [[0.1] * 4]) == 3


def test_the_metric_that_wants_the_most_replicas_decides() -> None:
    assert Autoscaler([CPU, QUEUE], 2).decide(15, 2, [[0.1, 0.1], [1.0, 1.0]]) == 4
    assert Autoscaler([CPU, QUEUE], 2).decide(15, 2, [[1.0, 1.0], [0.0, 0.0]]) == 3


@given(st.lists(st.tuples(st.integers(1, 60), st.floats(0, 100)), min_size=1, max_size=40), st.sampled_from([CPU, QUEUE]))
def test_whatever_is_measured_the_bounds_and_rates_hold(steps: list[tuple[int, float]], which: Settings) -> None:
    scaler, now, replicas = Autoscaler([which], which.least), 0, which.least
    history = [(0, replicas)]
    for seconds, value in steps:
        now += seconds
        replicas = scaler.decide(now, replicas, [[value] * replicas])
        assert which.least <= replicas <= which.most
        assert replicas <= 2 * max(n for at, n in history if at > now - 31 or (at, n) == history[-1])
        assert replicas >= history[-1][1] - 1
        history.append((now, replicas))


# ---- its settings


def test_the_components_say_what_deploy_md_says() -> None:
    (cpu,), (queue,), (keda,), hpa_both, keda_both = (read(name) for name in COMPONENTS)
    assert hpa_both == (cpu, queue)
    assert keda_both == (keda, cpu)
    assert (cpu.metric, cpu.target, cpu.together) == (Metric.CPU, 0.7, False)
    assert (queue.metric, queue.target, queue.window, queue.together) == (Metric.WAIT, 0.5, 60, False)
    assert (keda.metric, keda.target, keda.window, keda.together) == (Metric.WAIT, 0.5, 60, True)
    for one in (cpu, queue, keda):
        assert (one.least, one.most, one.up, one.down) == (2, 10, DOUBLE, ONE_DOWN)


def test_every_autoscaler_there_is_is_simulated() -> None:
    kinds = ("kind: HorizontalPodAutoscaler", "kind: ScaledObject")
    files = [path for path in (K8S / "components").glob("*/*.yaml") if any(kind in path.read_text("utf-8") for kind in kinds)]
    assert sorted(path.parent.name for path in files) == sorted(COMPONENTS)
    assert {case.settings for case in cases(480)} >= {read(name) for name in COMPONENTS}


def test_what_cannot_be_simulated_is_refused() -> None:
    rules = {"stabilizationWindowSeconds": 0, "policies": []}
    with pytest.raises(ValueError, match="Max"):
        behavior({"scaleUp": rules | {"selectPolicy": "Min"}, "scaleDown": rules})
    with pytest.raises(ValueError, match="no range"):
        range_seconds("sum(keyblock_wait_seconds)")


def test_quantities_and_ranges() -> None:
    assert (quantity("500m"), quantity("2")) == (0.5, 2.0)
    assert (range_seconds("sum(avg_over_time(x{a='b'}[1m]))"), range_seconds("rate(x[30s])")) == (60, 30)


# ---- the queue


def test_one_pod_by_hand() -> None:
    result = simulate(given_requests([0, 1, 1, 9], [2, 3, 1, 1]), Cluster(1))
    assert result.waits.tolist() == [0, 1, 4, 0]
    assert (result.worked, result.until, result.refused) == (7, 10, 0)


def test_a_request_that_would_wait_too_long_is_refused_and_costs_nothing() -> None:
    result = simulate(given_requests([0, 1, 2, 6], [5, 5, 5, 1]), Cluster(1), refuse=4.5)
    assert result.waits[[0, 1, 3]].tolist() == [0, 4, 4]
    assert math.isnan(result.waits[2])
    assert (result.refused, result.worked) == (0.25, 11)


@pytest.mark.parametrize("busy", [0.3, 0.6, 0.8])
def test_waits_are_those_of_theory_for_equal_requests(busy: float) -> None:
    """M/D/1: rho / (2 (1 - rho)) service times."""
    rng, n = np.random.default_rng(1), 400_000
    at = np.cumsum(rng.exponential(1 / busy, n))
    result = simulate(given_requests(at, np.ones(n)), Cluster(1), refuse=math.inf)
    assert result.waits.mean() == pytest.approx(busy / (2 * (1 - busy)), rel=0.03)


def test_waits_are_those_of_theory_for_exponential_ones() -> None:
    """M/M/1: rho / (1 - rho) service times; two pods that share one queue, M/M/2: rho^2 / (1 - rho^2)."""
    rng, n, busy = np.random.default_rng(2), 400_000, 0.7
    at, seconds = np.cumsum(rng.exponential(1, n)), rng.exponential(busy, n)
    alone = simulate(given_requests(at, seconds), Cluster(1), refuse=math.inf)
    assert alone.waits.mean() / busy == pytest.approx(busy / (1 - busy), rel=0.05)
    shared = simulate(given_requests(at, 2 * seconds), Cluster(2), least_work, refuse=math.inf)
    assert shared.waits.mean() / (2 * busy) == pytest.approx(busy**2 / (1 - busy**2), rel=0.05)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.floats(0, 300), st.floats(0.01, 30)), min_size=1, max_size=60),
    st.integers(1, 5),
    st.sampled_from([least_outstanding, least_work, round_robin, hashed]),
    st.sampled_from([(), (CPU,), (QUEUE,), (CPU, QUEUE)]),
    st.floats(0, 20),
)
def test_no_request_and_no_second_is_lost(drawn, replicas, choose, scaling, refuse) -> None:
    drawn = sorted(drawn)
    requests = given_requests([at for at, _ in drawn], [seconds for _, seconds in drawn], until=900)
    cluster = Cluster(replicas, scaling, start=7)
    result = simulate(requests, cluster, choose, refuse=refuse)
    served = ~np.isnan(result.waits)
    assert len(result.served) == served.sum()
    assert result.refused == pytest.approx(1 - served.mean())
    assert result.worked == pytest.approx(requests.seconds[served].sum())
    pods = [*cluster.ready, *cluster.starting, *(pod for pod, _ in cluster.gone)]
    assert sum(pod.work for pod in pods) == pytest.approx(result.worked)
    assert (result.waits[served] >= 0).all()
    assert (result.waits[served] <= refuse).all()
    assert result.until == pytest.approx(max(900, (requests.at + result.waits + requests.seconds)[served].max(initial=0)))


def test_a_pod_that_starts_gets_nothing_until_it_is_ready() -> None:
    requests = given_requests(np.arange(0.5, 120, 0.5), np.full(239, 1.0))
    cluster = Cluster(1, (Settings(Metric.WAIT, 0.5, True, 60, 1, 10, DOUBLE, ONE_DOWN),), start=20)
    result = simulate(requests, cluster, refuse=math.inf)
    first = next(at for at, n in result.replicas if n > 1)
    assert all(pod.created + 20 == pod.ready for pod in cluster.ready if pod.created)
    early = requests.at < first + 20
    assert (np.diff(result.waits[early]) > 0).all()
    assert result.waits[~early][0] == 0


def test_a_cluster_has_a_replica() -> None:
    with pytest.raises(ValueError, match="serve nobody"):
        Cluster(0)


def test_pods_are_paid_for_until_they_have_ended() -> None:
    """Two go after five quiet minutes, one a minute, ten seconds of preStop each."""
    requests = given_requests([0], [1], until=600)
    result = simulate(requests, Cluster(4, (CPU,), start=7))
    ends = [next(at for at, n in result.replicas if n < left) for left in (4, 3)]
    assert result.replicas[-1, 1] == 2
    assert result.pod_seconds == pytest.approx(2 * 600 + sum(ends) + 2 * 10)


def test_cpu_is_the_busy_share() -> None:
    pod = Pod(0, 0)
    pod.take(0, 6, 0)
    for at in (0.0, 15.0, 30.0):
        pod.sample(at, 31)
    assert pod.value(30, CPU) == pytest.approx(6 / 30)
    assert pod.value(30, QUEUE) == pytest.approx(6 / 3)
    assert Pod(20, 40).value(30, QUEUE) is None


def test_balancers_choose() -> None:
    pods = [Pod(0, 0), Pod(0, 0), Pod(0, 0)]
    pods[0].take(0, 9, 0)
    pods[1].take(0, 1, 1)
    pods[1].take(0, 1, 2)
    pods[2].take(0, 5, 3)
    assert least_outstanding(pods, 0, 4, 0) is pods[0]  # one request each with the third, but its turn was before
    assert least_outstanding(pods, 3, 4, 0) is pods[1]
    assert least_work(pods, 0, 4, 0) is pods[1]
    assert round_robin(pods, 0, 4, 0) is pods[1]
    assert hashed(pods, 0, 4, 5) is pods[2]


# ---- traffic


def test_service_times_are_those_measured() -> None:
    spreads = measured()
    assert set(MIX) <= set(spreads)
    assert all(one.low <= one.median <= one.high for one in spreads.values())
    drawn = Spread(1, 2, 5).draw(np.random.default_rng(0), 100_000)
    assert (drawn.min() >= 1, drawn.max() <= 5) == (True, True)
    assert np.median(drawn) == pytest.approx(2, abs=0.02)
    assert drawn.mean() == pytest.approx(Spread(1, 2, 5).mean, abs=0.02)


def test_a_steady_load_is_as_large_as_it_says_and_the_same_each_time() -> None:
    busy = 0.5
    requests = steady(busy * capacity(measured()), 4 * HOUR, seed=3)
    assert requests.seconds.sum() / (4 * HOUR) == pytest.approx(busy, rel=0.05)
    assert (requests.at == steady(busy * capacity(measured()), 4 * HOUR, seed=3).at).all()


def test_a_day_follows_the_curve_and_has_its_burst() -> None:
    requests = day(100)
    assert (np.diff(requests.at) >= 0).all()
    assert rate(np.array([12.5 * HOUR]), 100)[0] == 100
    assert rate(np.array([BURST[0]]), 100)[0] == pytest.approx(2.5 * rate(np.array([BURST[0] - 1.0]), 100)[0], rel=0.01)
    assert requests.documents.sum() == pytest.approx(rate(np.arange(DAY) + 0.5, 100).sum(), rel=0.02)
    assert CURVE[0][1] == CURVE[-1][1]


# ---- sizes


@pytest.mark.parametrize(
    ("documents", "replicas", "zones"),
    [
        (10, 2, 3),
        (90, 2, 3),  # 64% busy; with one lost just 90%
        (100, 3, 3),  # two would do until one is lost
        (1000, 15, 18),  # 1000 / 70; 12 must be left of three zones, 6 in each
    ],
)
def test_replicas_by_hand(documents: int, replicas: int, zones: int) -> None:
    assert (Size(documents, 100).replicas, Size(documents, 100).over_zones) == (replicas, zones)


@given(st.floats(1, 1e6), st.floats(1, 1e4))
def test_nothing_is_too_busy_even_when_a_part_is_lost(documents: float, one: float) -> None:
    size = Size(documents, one)
    assert size.busy() <= 0.7 + 1e-9
    assert size.busy(1) <= 0.9 + 1e-9
    assert size.over_zones >= size.replicas
    assert documents / one / (size.over_zones * 2 / 3) <= 0.9 + 1e-9


def test_sizes_come_from_what_is_published() -> None:
    page = (K8S.parent / "docs" / "performance.md").read_text(encoding="utf-8")
    assert f"| {throughput():.1f} |" in next(row for row in page.splitlines() if row.startswith("| **KeyBlock, as it comes"))
    assert gibibytes("2Gi") == 2


# ---- stores


def test_what_is_measured_of_redis_are_whole_documents(tmp_path) -> None:
    need_redis()
    stored, preparing = items(5, 300)
    assert preparing > 0
    with answering_redis(tmp_path) as port:
        store = RedisStore(f"redis://127.0.0.1:{port}/0")
        store.put_many("", stored)
        n, _ = read_from(store, 5, 0.05, decoding=True)
        assert n >= 100
        contents = store.get_many("", [str(number) for number in range(5)])
        assert [decode(content or b"").text[:5] for content in contents] == [decode(item.content).text[:5] for item in stored]
        store.delete("", "3")
        with pytest.raises(SystemExit, match="not there"):
            read_from(store, 5, 1, decoding=False)
        store.close()


def test_a_kind_that_was_not_measured_is_named(tmp_path) -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    grid = record["parts"]["grid"]
    grid["rows"] = [row for row in grid["rows"] if row["words"] != 500]
    (tmp_path / "record.json").write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(ValueError, match=r"for 10 x 500, 100 x 500: measure with make bench"):
        measured(tmp_path / "record.json")


# ---- caches


def test_a_cache_that_has_room_for_all_hits_always_and_equal_ones_by_their_share() -> None:
    assert hit_share(zipf(100, 1.0), 100) == 1.0
    assert hit_share(np.full(1000, 1e-3), 250) == pytest.approx(0.25, rel=1e-6)


def test_the_approximation_is_what_a_cache_does() -> None:
    shares, entries, asked = zipf(2000, 0.9), 200, 60_000
    kept: dict[int, None] = {}
    hits = 0
    for n, one in enumerate(np.random.default_rng(0).choice(2000, asked, p=shares).tolist()):
        hits += n >= asked // 4 and one in kept
        kept.pop(one, None)
        kept[one] = None
        if len(kept) > entries:
            del kept[next(iter(kept))]
    assert hit_share(shares, entries) == pytest.approx(hits / (asked * 3 / 4), abs=0.01)


def test_every_rule_serves_all() -> None:
    requests = steady(100, 600)
    for rule in all_rules(len(requests), np.random.default_rng(0)):
        assert len(simulate(requests, Cluster(3), rule.choose, rule.keys, refuse=math.inf).served) == len(requests)


# ---- what is shown


def test_the_table_and_the_picture() -> None:
    requests = day(20)
    result = simulate(requests, Cluster(2))
    row = line("two", result, within(result, requests, *BURST[:2]))
    assert row.startswith("| two | 48 | 2 | ")
    figure = draw(requests, 20, [("two", result)])
    assert [text.get_text() for text in figure.axes[1].get_legend().get_texts()] == ["two", "70% busy"]


def test_a_document_is_lost_when_neither_what_was_acknowledged_nor_a_later_one_is_there() -> None:
    """Of four documents one is as acknowledged, one as tried since, one as before, and one is not there."""

    class Kept:
        def get_many(self, _namespace: str, ids: Sequence[str]) -> list[bytes | None]:
            return [{"a": b"2", "b": b"3", "c": b"1", "d": None}[one] for one in ids]

    watched = Watched(Kept(), [])  # type: ignore[arg-type]
    for name in "abcd":
        watched.acknowledged[name] = Item(name, b"2")
        watched.tried[name] = [Item(name, b"2"), Item(name, b"3")]
    assert watched.lost() == 2
