import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from service.metrics import BUCKETS, TABLE, Metrics


def test_a_name_outside_the_table_is_an_error() -> None:
    metrics = Metrics()
    with pytest.raises(KeyError):
        metrics.add("reqests")
    with pytest.raises(KeyError):
        metrics.set("requests", 1)  # a counter is not set
    with pytest.raises(ValueError, match="label"):
        metrics.add("requests", client="x")


def test_two_services_in_one_process_do_not_mix() -> None:
    first, second = Metrics(), Metrics()
    first.add("stored", 5)
    assert first.registry.get_sample_value("keyblock_stored_documents_total") == 5
    assert second.registry.get_sample_value("keyblock_stored_documents_total") == 0


def test_every_row_is_exposed_with_its_help_and_unit(client: TestClient) -> None:
    client.post("/rerank", json={"query": "river", "documents": ["the river", ""]})
    client.post("/rerank", json={"query": "river", "texts": ["the river"]})
    client.post("/rerank", content=b"{")
    client.delete("/documents/a")
    families = {family.name: family for family in text_string_to_metric_families(client.get("/metrics").text)}
    for row in TABLE.values():
        family = families[row.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (row.kind, row.help)
        assert family.samples, row.name
        assert all(set(row.labels) <= set(sample.labels) for sample in family.samples)
    requests = {
        (s.labels["dialect"], s.labels["outcome"]): s.value for s in families["keyblock_requests"].samples if "total" in s.name
    }
    assert requests["native", "ok"] >= 1
    assert requests["tei", "ok"] >= 1
    assert requests["native", "invalid"] >= 1
    (build,) = families["keyblock_build_info"].samples
    assert (build.labels["bundle"], build.labels["provider"], build.value) == ("tiny", "cpu", 1.0)
    assert [s.value for s in families["keyblock_ready"].samples] == [1.0]


def test_buckets_resolve_half_a_millisecond_and_reach_half_a_minute(client: TestClient) -> None:
    client.post("/rerank", json={"query": "river", "documents": ["the river"]})
    families = {family.name: family for family in text_string_to_metric_families(client.get("/metrics").text)}
    samples = families["keyblock_stage_seconds"].samples
    bounds = {float(s.labels["le"]) for s in samples if s.name.endswith("_bucket")}
    assert bounds == {*BUCKETS, float("inf")}
    assert (BUCKETS[0], BUCKETS[-1]) == (0.0005, 30)


def test_openmetrics_for_who_asks(client: TestClient) -> None:
    response = client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert response.text.endswith("# EOF\n")
