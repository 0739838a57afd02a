import pytest

from k8s.monitoring.promql import aggregated, quantile, rate, scoped, series


def test_names_come_from_the_table() -> None:
    assert series("refused", why="=wait") == 'keyblock_refused_total{why="wait"}'
    assert series("requests", outcome="!~a|b", dialect="tei") == 'keyblock_requests_total{outcome!~"a|b", dialect="tei"}'
    with pytest.raises(KeyError):
        series("reqests")
    with pytest.raises(ValueError, match="keyblock_refused_total has no label how"):
        series("refused", how="=wait")


def test_a_dashboards_variables_are_named_where_there_are_such_labels() -> None:
    assert scoped("wait") == 'keyblock_wait_seconds{namespace=~"$namespace", pod=~"$pod"}'
    assert scoped("tokens") == 'keyblock_tokens_total{namespace=~"$namespace", pod=~"$pod", model=~"$model"}'


def test_rates_and_quantiles() -> None:
    assert rate("stored", within="5m") == "sum(rate(keyblock_stored_documents_total[5m]))"
    assert rate("refused", ["why"], "5m") == "sum by (why) (rate(keyblock_refused_total[5m]))"
    assert quantile("latency", 0.99).startswith("histogram_quantile(0.99, sum by (le) (rate(keyblock_request_seconds_bucket{")
    assert aggregated("max", series("wait"), ["pod"]) == "max by (pod) (keyblock_wait_seconds)"
