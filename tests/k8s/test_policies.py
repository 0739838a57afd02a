import copy
from pathlib import Path
from typing import Any

import pytest

from keyblock import __version__
from tests.k8s.manifests import K8S, Manifest, containers, one, pods
from tests.k8s.policies import violations


def test_every_pod_keeps_to_the_policies(built: dict[str, list[Manifest]]) -> None:
    found = [(f"{name}: {where}", pod) for name, manifests in built.items() for where, pod in pods(manifests)]
    assert len(found) >= len(built)
    broken = {f"{where.partition(': ')[2]}: {wrong}" for where, pod in found for wrong in violations(pod)}
    assert broken == {"RayService/keyblock/head: has the API's token"}, "the autoscaler beside it asks the API server for workers"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"securityContext": {"runAsNonRoot": True, "runAsUser": 0}}, "may run as root"),
        ({"enableServiceLinks": True}, "takes the variables of services for settings"),
        ({"hostNetwork": True}, "is in the host's namespaces"),
        ({"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}, "a volume that is not allowed"),
        ({"volumes": [{"name": "a", "emptyDir": {}}]}, "an emptyDir without a limit"),
    ],
)
def test_a_pod_that_breaks_one_is_told(cpu: list[Manifest], change: dict[str, Any], said: str) -> None:
    _, pod = next(pods(cpu))
    assert said in violations(pod | change)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"image": "registry.example/keyblock:latest"}, "an image that moves"),
        ({"image": "registry.example/keyblock"}, "an image that moves"),
        ({"image": "registry.example:5000/keyblock"}, "an image that moves"),
        ({"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}, "has no limit of CPU or memory"),
        ({"securityContext": {}}, "may gain privileges"),
        ({"ports": [{"containerPort": 8000, "hostPort": 8000}]}, "shares a port of the node"),
    ],
)
def test_a_container_that_breaks_one_is_told(cpu: list[Manifest], change: dict[str, Any], said: str) -> None:
    pod = copy.deepcopy(next(pods(cpu))[1])
    pod["containers"][0] |= change
    assert f"keyblock: {said}" in violations(pod)


def test_images_are_of_this_version(built: dict[str, list[Manifest]]) -> None:
    images = {one["image"] for manifests in built.values() for _, pod in pods(manifests) for one in containers(pod)}
    images.add(one(built["jobs/several-gpus"], "TrainJob", "keyblock-train")["spec"]["trainer"]["image"])
    assert images == {f"registry.example/keyblock:{__version__}-{target}" for target in ("cpu", "gpu", "ray", "train")}


def test_everything_is_in_one_namespace(built: dict[str, list[Manifest]]) -> None:
    assert {manifest["metadata"].get("namespace") for manifests in built.values() for manifest in manifests} == {"keyblock"}


def test_no_file_is_left_out() -> None:
    """Each kustomization names what lies beside it: kustomize knows no wildcards, so a new dashboard is added by hand."""
    left = []
    for kustomization in K8S.rglob("kustomization.yaml"):
        text = kustomization.read_text(encoding="utf-8")
        names = [path.relative_to(kustomization.parent).as_posix() for path in beside(kustomization.parent)]
        left += [f"{kustomization.relative_to(K8S)}: {name}" for name in names if name not in text]
    assert left == []


def beside(directory: Path) -> list[Path]:
    """Manifests, patches and dashboards; not values for another chart."""
    own = [path for path in directory.glob("*.yaml") if path.name not in ("kustomization.yaml", "adapter-values.yaml")]
    return [*own, *directory.glob("dashboards/*.json")]
