"""What the manifests set is what the service reads, and fits what they allow it."""

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from service.app import OPERATIONS
from service.ranking.ranker import STORE_SHARE
from service.settings import Settings
from service.telemetry.metrics import TABLE
from tests.k8s.manifests import AUTOSCALING, K8S, Manifest, one

PREFIX = "KEYBLOCK_"
UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def container_of(manifests: list[Manifest]) -> Manifest:
    container: Manifest = one(manifests, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    return container


def settings_of(manifests: list[Manifest]) -> Settings:
    """As a pod reads them."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in one(manifests, "ConfigMap")["data"].items():
            patch.setenv(name, value)
        return Settings()


def amount(quantity: str) -> int:
    found = re.fullmatch(r"(\d+)([KMG]i)", quantity)
    assert found, quantity
    return int(found[1]) * UNITS[found[2]]


def written(value: object) -> str:
    """As an environment variable."""
    return os.pathsep.join(map(str, value)) if isinstance(value, tuple) else str(value)


def serving(built: dict[str, list[Manifest]]) -> dict[str, list[Manifest]]:
    """With the service's own Deployment: operators that make the pods are tested in test_operators."""
    return {name: manifests for name, manifests in built.items() if any(one["kind"] == "Deployment" for one in manifests)}


def test_every_name_is_a_setting_with_a_valid_value(built: dict[str, list[Manifest]]) -> None:
    known = {f"{PREFIX}{name}".upper() for name in Settings.model_fields}
    for manifests in serving(built).values():
        data = one(manifests, "ConfigMap")["data"]
        assert set(data) <= known
        read = settings_of(manifests)
        assert {name: written(getattr(read, name.removeprefix(PREFIX).lower())) for name in data} == data


def test_the_service_listens_where_it_is_asked(built: dict[str, list[Manifest]]) -> None:
    for manifests in serving(built).values():
        read = settings_of(manifests)
        container = container_of(manifests)
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert (read.host, ports) == ("0.0.0.0", {"http": read.port, "admin": read.admin_port})
        assert {container[f"{kind}Probe"]["httpGet"]["port"] for kind in ("startup", "readiness", "liveness")} == {"http"}
        assert one(manifests, "Service")["spec"]["ports"][0]["targetPort"] == "http"


def test_a_pod_has_the_time_to_finish(cpu: list[Manifest]) -> None:
    """preStop, then what is in flight, then the end: all of it before the kubelet kills."""
    pod = one(cpu, "Deployment")["spec"]["template"]["spec"]
    asleep = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] >= asleep + settings_of(cpu).shutdown_seconds + 5
    ready = pod["containers"][0]["readinessProbe"]
    assert asleep >= ready["periodSeconds"] + ready["timeoutSeconds"]


def test_a_slow_start_is_no_failure(cpu: list[Manifest]) -> None:
    startup = container_of(cpu)["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] == 120
    assert one(cpu, "Deployment")["spec"]["progressDeadlineSeconds"] > 2 * 120


def test_probes_ask_paths_that_are_there(cpu: list[Manifest]) -> None:
    asked = {kind: container_of(cpu)[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")}
    assert asked == {"startup": "/health/live", "readiness": "/health/ready", "liveness": "/health/live"}
    assert set(asked.values()) <= set(OPERATIONS)


def test_what_is_in_flight_and_cached_fits_the_memory(built: dict[str, list[Manifest]]) -> None:
    """A body is held once as bytes and again as text while it is read; the model and the interpreter want theirs."""
    for name in ("cpu", "gpu"):
        read = settings_of(built[name])
        container = container_of(built[name])
        kept = read.cache_bytes + read.score_cache_bytes
        in_flight = read.max_bytes_in_flight * (1 + 1 / STORE_SHARE)
        assert 4 * in_flight + kept <= amount(container["resources"]["limits"]["memory"])


def test_the_proxy_lets_through_what_the_service_takes(built: dict[str, list[Manifest]]) -> None:
    annotations = one(built["cpu-ingress"], "Ingress")["metadata"]["annotations"]
    wanted = f"{Settings.model_fields['max_body_bytes'].default // 2**20}m"
    assert annotations["nginx.org/client-max-body-size"] == wanted
    assert annotations["nginx.ingress.kubernetes.io/proxy-body-size"] == wanted


def test_a_gpu_is_asked_for_and_insisted_on(built: dict[str, list[Manifest]]) -> None:
    assert settings_of(built["gpu"]).provider == "cuda"
    container = container_of(built["gpu"])
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_the_autoscalers_ask_for_a_metric_that_is_there(built: dict[str, list[Manifest]]) -> None:
    gauges = {metric.name for metric in TABLE.values() if metric.kind == "gauge"}
    hpa = one(built["cpu-hpa-queue"], "HorizontalPodAutoscaler")["spec"]["metrics"][0]["pods"]["metric"]["name"]
    assert one(built["cpu-hpa-both"], "HorizontalPodAutoscaler")["spec"]["metrics"][1]["pods"]["metric"]["name"] == hpa
    query = one(built["cpu-keda"], "ScaledObject")["spec"]["triggers"][0]["metadata"]["query"]
    assert one(built["cpu-keda-both"], "ScaledObject")["spec"]["triggers"][0]["metadata"]["query"] == query
    rule = (K8S / "components" / "hpa-queue" / "adapter-values.yaml").read_text(encoding="utf-8")
    assert hpa in gauges
    assert f"({hpa}{{" in query
    assert f"seriesQuery: {hpa}{{" in rule
    assert "by (<<.GroupBy>>)" in rule, "the adapter tells pods apart by what it grouped by"


def test_traces_are_let_out_to_where_they_are_sent(built: dict[str, list[Manifest]]) -> None:
    manifests = built["cpu-traces"]
    port = urlsplit(settings_of(manifests).otlp_endpoint).port
    let_out = [to["port"] for rule in one(manifests, "NetworkPolicy")["spec"]["egress"] for to in rule["ports"]]
    assert port in let_out
    variables = [each["name"] for each in container_of(manifests)["env"]]
    assert variables[-1] == "OTEL_RESOURCE_ATTRIBUTES", "what it is made of is named before it"


def test_an_autoscaler_owns_the_number_of_replicas(built: dict[str, list[Manifest]]) -> None:
    for name in AUTOSCALING:
        assert "replicas" not in one(built[f"cpu-{name}"], "Deployment")["spec"]
    assert one(built["cpu"], "Deployment")["spec"]["replicas"] >= 2


def test_the_bundle_is_where_it_is_mounted(built: dict[str, list[Manifest]]) -> None:
    for name in ("model-pvc", "model-image", "model-download"):
        (bundle,) = settings_of(built[f"cpu-{name}"]).bundle
        mounts = container_of(built[f"cpu-{name}"])["volumeMounts"]
        assert [m for m in mounts if bundle.is_relative_to(Path(m["mountPath"])) and m.get("readOnly")], (name, bundle)


def test_another_setting_rolls_the_pods(built: dict[str, list[Manifest]]) -> None:
    """The ConfigMap's name has a hash of what it holds, and the pods name it."""
    for name in ("cpu", "gpu", "cpu-model-pvc"):
        source = container_of(built[name])["envFrom"][0]
        assert source["configMapRef"]["name"] == one(built[name], "ConfigMap")["metadata"]["name"]
    assert one(built["cpu"], "ConfigMap")["metadata"]["name"] != one(built["gpu"], "ConfigMap")["metadata"]["name"]


def test_selectors_find_the_pods(built: dict[str, list[Manifest]]) -> None:
    for manifests in serving(built).values():
        labels = one(manifests, "Deployment")["spec"]["template"]["metadata"]["labels"].items()
        chosen = [
            one(manifests, "Deployment")["spec"]["selector"]["matchLabels"],
            one(manifests, "Service")["spec"]["selector"],
            one(manifests, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
            one(manifests, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        ]
        assert all(selector.items() <= labels for selector in chosen)
    assert one(built["monitoring"], "PodMonitor")["spec"]["podMetricsEndpoints"][0]["port"] == "admin"
    assert one(built["monitoring"], "PodMonitor")["spec"]["selector"]["matchLabels"].items() <= labels
