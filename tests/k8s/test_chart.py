"""The Helm chart makes what kustomize makes: the same objects for the same wishes, and what its users may change."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_python.chart import Chart, lint
from helm_python.errors import HelmError

from tests.k8s.manifests import HASH, K8S, Manifest, one
from tests.k8s.test_schemas import wrong

SHA = "0" * 64
IMAGE = "registry.example/keyblock-bundle:1"
WISHES: dict[str, dict[str, Any]] = {  # a variant of conftest's `built`, and the values that ask for the same
    "cpu": {},
    "gpu": {"gpu": True},
    "monitoring": {"monitoring": True},
    "cpu-ingress": {"ingress": {"host": "rerank.example.com"}},
    "cpu-redis": {"store": "redis"},
    "cpu-redis-cluster": {"store": "redis-cluster"},
    "cpu-traces": {"traces": "http://otel-collector.monitoring.svc:4318"},
    "cpu-model-pvc": {"bundle": {"claim": {"name": "keyblock-work", "path": "mine"}}},
    "cpu-model-image": {"bundle": {"image": IMAGE}},
    "gpu-model-download": {"gpu": True, "bundle": {"download": {"url": "https://models.example.com/mine.tar.gz", "sha256": SHA}}},
    **{
        f"cpu-{by if by.startswith('keda') else f'hpa-{by}'}": {"autoscaling": {"by": by}}
        for by in ("cpu", "queue", "both", "keda", "keda-both")
    },
}


def made(values: dict[str, Any], namespace: str = "keyblock") -> list[Manifest]:
    texts = Chart.load(K8S).render(values, name="mine", namespace=namespace).values()
    return [manifest for text in texts for manifest in yaml.safe_load_all(text) if manifest]


def plain(manifest: Manifest) -> Manifest:
    """Without what each tool adds of its own: labels, the namespace, the hash of the settings and where it stands."""
    manifest = copy.deepcopy(manifest)
    for metadata in (manifest["metadata"], manifest["spec"]["template"]["metadata"] if manifest["kind"] == "Deployment" else {}):
        for key in ("labels", "annotations") if manifest["kind"] != "Ingress" else ("labels",):
            metadata.pop(key, None)
    manifest["metadata"].pop("namespace", None)
    if manifest["kind"] == "Deployment":  # whose volumes have no order
        pod = manifest["spec"]["template"]["spec"]
        for holder, key in ((pod, "volumes"), (pod["containers"][0], "volumeMounts")):
            holder[key].sort(key=lambda volume: volume["name"])
    return yaml.safe_load(re.sub(rf"(keyblock|keyblock-download)-{HASH.pattern}\b", r"\1", yaml.safe_dump(manifest)))  # type: ignore[no-any-return]


def kind_and_name(manifest: Manifest) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


@pytest.mark.parametrize("variant", WISHES)
def test_it_makes_what_kustomize_makes(built: dict[str, list[Manifest]], schemas: Path, variant: str) -> None:
    by_chart, by_kustomize = made(WISHES[variant]), built[variant]
    assert sorted(map(plain, by_chart), key=kind_and_name) == sorted(map(plain, by_kustomize), key=kind_and_name)
    assert [error for manifest in by_chart if (error := wrong(manifest, schemas))] == []
    selected = one(by_chart, "Service")["spec"]["selector"].items()
    assert selected <= one(by_chart, "Deployment")["spec"]["template"]["metadata"]["labels"].items()


def test_what_a_user_changes() -> None:
    values = {
        "image": {"repository": "registry.mine/keyblock", "tag": "7"},
        "replicas": 5,
        "settings": {"KEYBLOCK_DEFAULT_DEADLINE_MS": 1_000_000, "KEYBLOCK_LOG_FORMAT": "json"},
        "secrets": {"KEYBLOCK_API_KEYS": '[{"name": "search"}]'},
        "pod": {"nodeSelector": {"pool": "cpu"}},
        "container": {"resources": {"limits": {"memory": "4Gi"}}},
    }
    manifests = made(values)
    deployment = one(manifests, "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    assert (deployment["spec"]["replicas"], pod["nodeSelector"]) == (5, {"pool": "cpu"})
    assert pod["containers"][0]["image"] == "registry.mine/keyblock:7"
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": "2", "memory": "4Gi"}
    settings = one(manifests, "ConfigMap")["data"]
    assert (settings["KEYBLOCK_DEFAULT_DEADLINE_MS"], settings["KEYBLOCK_PORT"]) == ("1000000", "8000")
    assert one(manifests, "Secret")["stringData"] == values["secrets"]


def test_a_changed_setting_rolls_the_pods_and_nothing_else_does() -> None:
    def annotations(values: dict[str, Any]) -> Any:
        return one(made(values), "Deployment")["spec"]["template"]["metadata"]["annotations"]

    assert annotations({}) == annotations({"replicas": 3})
    assert annotations({}) != annotations({"settings": {"KEYBLOCK_DEFAULT_DEADLINE_MS": 500}})


def test_the_queue_of_its_own_namespace_is_asked_for() -> None:
    scaling = {"by": "keda", "min": 3, "prometheus": "http://p:9090"}
    triggers = one(made({"autoscaling": scaling}, "search"), "ScaledObject")["spec"]["triggers"]
    assert 'namespace="search"' in triggers[0]["metadata"]["query"]
    assert triggers[0]["metadata"]["serverAddress"] == "http://p:9090"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"replica": 2}, "replica"),
        ({"autoscaling": {"by": "memory"}}, "memory|must be one of"),
        ({"settings": {"DEADLINE_MS": 5}}, "DEADLINE_MS"),
        ({"bundle": {"image": IMAGE, "claim": {"name": "a", "path": "b"}}}, "name one of claim, image and download"),
    ],
)
def test_wrong_values_are_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(HelmError, match=said):
        Chart.load(K8S).render(values)


def test_helm_finds_nothing_to_say() -> None:
    assert [message for message in lint(K8S, strict=True)["messages"] if "icon" not in message["error"]] == []
