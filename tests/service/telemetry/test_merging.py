"""One set of metrics of several processes."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.samples import Exemplar

from service.telemetry.merging import COMBINING, Merged, counted
from service.telemetry.metrics import BUCKETS, TABLE, Metrics

SOLO = {"requests": {"dialect": "native", "outcome": "ok"}, "denied": {"why": "key"}, "stored": {}}
Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


def families(metrics: Metrics) -> list[Metric]:
    return list(metrics.registry.collect())


def values(families: list[Metric]) -> Values:
    """Of the service's own metrics."""
    samples = [sample for family in families for sample in family.samples if sample.name.startswith("keyblock_")]
    return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}


@given(st.lists(st.lists(st.tuples(st.sampled_from([*SOLO]), st.integers(0, 9))), min_size=1, max_size=4))
def test_what_processes_have_counted_is_the_sum(processes: list[list[tuple[str, int]]]) -> None:
    """And of histograms each bucket's."""
    made = [Metrics() for _ in processes]
    expected: Counter[str] = Counter()
    for metrics, done in zip(made, processes, strict=True):
        for key, amount in done:
            metrics.add(key, amount, **SOLO[key])
            metrics.of("tiny").observe("batch_seconds", amount / 10)
            expected[key] += amount
    merged = values(Merged(map(families, made)).collect())
    for key, labels in SOLO.items():
        assert merged[TABLE[key].name, frozenset(labels.items())] == expected[key]
    of_each = [values(families(metrics)) for metrics in made]
    for key, value in merged.items():
        if "_bucket" in key[0] or "_sum" in key[0] or "_count" in key[0]:
            assert value == pytest.approx(sum(one.get(key, 0.0) for one in of_each))
    seconds = [amount / 10 for done in processes for _, amount in done]
    for bound in BUCKETS:
        key = "keyblock_batch_seconds_bucket", frozenset({("model", "tiny"), ("le", str(float(bound)))})
        assert merged.get(key, 0.0) == sum(second <= bound for second in seconds)


def test_a_gauge_is_what_the_table_says_of_all() -> None:
    """Of two processes one is ready; 3 and 4 requests are in flight; the same work waits for 2 s and for 5 s."""
    made = [Metrics(), Metrics()]
    for metrics, (ready, in_flight, wait) in zip(made, [(1, 3, 2.0), (0, 4, 5.0)], strict=True):
        for key, value in {"ready": ready, "in_flight": in_flight, "wait": wait}.items():
            metrics.set(key, value)
    merged = values(Merged(map(families, made)).collect())
    said = [merged[TABLE[key].name, frozenset()] for key in ("ready", "in_flight", "wait")]
    assert said == [0, 7, 5.0]


def test_what_has_ended_keeps_its_counts_and_no_gauge() -> None:
    metrics = Metrics()
    metrics.add("stored", 3)
    metrics.set("in_flight", 2)
    kept = values(counted(families(metrics)))
    assert kept["keyblock_stored_documents_total", frozenset()] == 3
    assert ("keyblock_in_flight_requests", frozenset()) not in kept


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text; version=1.0.0"])
def test_merged_metrics_of_one_process_are_written_as_its_registry_writes_them(accept: str) -> None:
    """Whatever encodes them; what process and platform say changes between two looks."""
    metrics = Metrics()
    metrics.of("tiny").observe("batch_seconds", 0.02, trace_id="0af7651916cd43dd8448eb211c80319c")
    encode, _ = choose_encoder(accept)
    expected, written = (
        [line for line in encode(registry).splitlines() if b"keyblock_" in line]
        for registry in (metrics.registry, Merged([families(metrics)]))
    )
    assert [re.sub(rb" [0-9.e+]+$", b"", line) for line in written] == [re.sub(rb" [0-9.e+]+$", b"", line) for line in expected]


def test_an_exemplar_is_one_of_them() -> None:
    made = [Metrics(), Metrics()]
    made[1].of("tiny").observe("batch_seconds", 0.02, trace_id="0af7651916cd43dd8448eb211c80319c")
    merged = Merged(map(families, made)).collect()
    exemplars = [sample.exemplar for family in merged for sample in family.samples if sample.exemplar]
    assert [exemplar.labels for exemplar in exemplars if isinstance(exemplar, Exemplar)] == [
        {"trace_id": "0af7651916cd43dd8448eb211c80319c"}
    ]


def test_only_gauges_are_declared_otherwise_than_summed() -> None:
    assert {row.kind for row in TABLE.values() if row.merged != "sum"} == {"gauge"}
    assert COMBINING["keyblock_ready"] == "least"
