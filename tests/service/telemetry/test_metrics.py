import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from service.http.dialects import DIALECTS as MODULES
from service.settings import Settings
from service.telemetry.metrics import DIALECTS, MODEL, REFUSED, TABLE, Metrics


def test_a_name_or_a_label_that_is_not_declared_is_an_error() -> None:
    metrics = Metrics()
    for undeclared in (lambda: metrics.add("reqests"), lambda: metrics.set("requests", 1)):  # a counter is not set
        with pytest.raises(KeyError):
            undeclared()
    with pytest.raises(ValueError, match="label"):
        metrics.add("requests", client="x")
    with pytest.raises(ValueError, match="no labels"):
        metrics.add("stored", client="x")
    with pytest.raises(ValueError, match="outcome has no value 'teapot'"):
        metrics.of("m").add("requests", dialect="native", outcome="teapot")
    with pytest.raises(ValueError, match="stage has no value"):
        metrics.of("m").observe("stages", 1.0, stage="coffee")
    assert tuple(dialect.name for dialect in MODULES) == DIALECTS


def test_metrics_of_two_models_share_a_registry_and_tell_them_apart() -> None:
    metrics = Metrics()
    first, second = metrics.of("first"), metrics.of("second")
    first.add("tokens", 5)
    second.add("stored", 1)
    value = metrics.registry.get_sample_value
    assert (value("keyblock_tokens_total", {MODEL: "first"}), value("keyblock_tokens_total", {MODEL: "second"})) == (5, 0)
    assert value("keyblock_stored_documents_total") == 1
    first.forget_model()
    assert value("keyblock_tokens_total", {MODEL: "first"}) is None
    assert value("keyblock_tokens_total", {MODEL: "second"}) == 0


def test_what_ends_late_of_a_model_that_is_gone_brings_nothing_back() -> None:
    metrics = Metrics()
    value = metrics.registry.get_sample_value
    old = metrics.of("one")
    old.forget_model()
    old.add("tokens", 5)
    old.observe("batch_seconds", 0.1)
    metrics.set("queued", 3, model="one")
    assert not [s for family in metrics.registry.collect() for s in family.samples if s.labels.get(MODEL)]
    with pytest.raises(ValueError, match="has no value"):
        old.add("batches", outcome="teapot")
    metrics.of("one").add("tokens", 7)
    assert value("keyblock_tokens_total", {MODEL: "one"}) == 7


def test_counters_are_there_from_the_start() -> None:
    metrics = Metrics().of("m")
    for row in TABLE.values():
        if row.kind == "counter":
            samples = [s for family in metrics.registry.collect() for s in family.samples if s.name == row.name]
            assert samples, row.name
            assert {s.value for s in samples} == {0.0}
    shown = [metrics.registry.get_sample_value("keyblock_refused_total", {"why": why}) for why in REFUSED]
    assert shown == [0.0] * len(REFUSED)


def test_every_row_is_exposed_with_its_help_and_unit(client: TestClient) -> None:
    client.post("/rerank", json={"query": "river", "documents": ["the river", ""]})
    client.post("/rerank", json={"query": "river", "texts": ["the river"]})
    client.post("/rerank", content=b"{")
    client.delete("/documents/a")
    families = {family.name: family for family in text_string_to_metric_families(client.get("/metrics").text)}
    for row in TABLE.values():
        family = families[row.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (row.kind, row.help)
        assert family.samples or row.name.startswith("keyblock_gpu_"), row.name
        assert all(set(row.labels) <= set(sample.labels) for sample in family.samples)
    requests = {
        (s.labels["dialect"], s.labels["outcome"]): s.value for s in families["keyblock_requests"].samples if "total" in s.name
    }
    assert requests["native", "ok"] >= 1
    assert requests["tei", "ok"] >= 1
    assert requests["native", "invalid"] >= 1
    (build,) = families["keyblock_build_info"].samples
    assert (build.labels[MODEL], build.labels["provider"], build.value) == ("tiny", "cpu", 1.0)
    assert [s.value for s in families["keyblock_ready"].samples] == [1.0]


def test_blocks_and_deadlines_are_counted(client: TestClient) -> None:
    def counted() -> dict[str, float]:
        families = text_string_to_metric_families(client.get("/metrics").text)
        return {
            f"{family.name} {sample.labels.get('step') or sample.labels.get('outcome')}": sample.value
            for family in families
            if family.name in ("keyblock_blocks", "keyblock_deadlines")
            for sample in family.samples
        }

    before = counted()
    text = "The river flooded the stone bridge in the city. " * 200
    client.post("/rerank", json={"query": "river", "documents": [text, "the river", ""], "deadline_ms": 60_000})
    grown = {name: value - before[name] for name, value in counted().items()}
    assert grown["keyblock_blocks considered"] > grown["keyblock_blocks scored"] >= 2
    assert grown["keyblock_blocks asked"] == 0  # no learned selector
    assert (grown["keyblock_deadlines met"], grown["keyblock_deadlines missed"]) == (1, 0)


def test_whatever_clients_send_there_are_as_many_series(client: TestClient) -> None:
    def series() -> set[str]:
        return {
            f"{sample.name}{sorted(sample.labels.items())}"
            for family in text_string_to_metric_families(client.get("/metrics").text)
            for sample in family.samples
            if family.name.startswith("keyblock_")
        }

    before = series()
    for number in range(20):
        client.post(
            f"/rerank?{number}", json={"query": "q", "documents": ["a"], "model": f"m{number}"}, headers={"x-a": str(number)}
        )
        client.post("/rerank", json={"query": "q", "texts": []}, headers={"user-agent": f"client {number}"})
        client.request(f"VERB{number}", f"/documents/{number}")
        client.request(f"VERB{number}", "/rerank")
        client.delete(f"/documents/{number}")
        client.get(f"/nowhere/{number}")
    assert series() == before


def test_the_trace_id_of_a_caller_stands_beside_what_its_request_took(client: TestClient, settings: Settings) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    for flags in ("01", "00"):
        headers = {"traceparent": f"00-{trace if flags == '01' else 'f' * 32}-00f067aa0ba902b7-{flags}"}
        assert client.post("/rerank", json={"query": "river", "documents": ["a river"]}, headers=headers).status_code == 200
    exposed = client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"}).text
    beside = [line.partition("{")[0] for line in exposed.splitlines() if f'trace_id="{trace}"' in line]
    assert {"keyblock_request_seconds_bucket", "keyblock_stage_seconds_bucket"} == set(beside)
    assert "f" * 32 not in exposed  # not sampled
    assert trace not in client.get("/metrics").text  # Prometheus's own text has no place for it
