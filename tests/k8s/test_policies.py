from pathlib import Path

from keyblock import __version__
from tests.k8s.manifests import Manifest, containers, one, pods
from tests.k8s.policies import violations


def test_every_pod_keeps_to_the_policies(built: dict[str, list[Manifest]]) -> None:
    found = [(f"{name}: {where}", pod) for name, manifests in built.items() for where, pod in pods(manifests)]
    assert len(found) >= len(built)
    broken = {f"{where.partition(': ')[2]}: {wrong}" for where, pod in found for wrong in violations(pod)}
    assert broken == {"RayService/keyblock/head: has the API's token"}, "the autoscaler beside it asks the API server for workers"


def test_images_are_of_this_version(built: dict[str, list[Manifest]]) -> None:
    images = {one["image"] for manifests in built.values() for _, pod in pods(manifests) for one in containers(pod)}
    images.add(one(built["jobs/several-gpus"], "TrainJob", "keyblock-train")["spec"]["trainer"]["image"])
    assert images == {f"registry.example/keyblock:{__version__}-{target}" for target in ("cpu", "gpu", "ray", "train")}


def test_everything_is_in_one_namespace(built: dict[str, list[Manifest]]) -> None:
    assert {manifest["metadata"].get("namespace") for manifests in built.values() for manifest in manifests} == {"keyblock"}


def beside(directory: Path) -> list[Path]:
    """Manifests, patches and dashboards; not values for another chart."""
    own = [path for path in directory.glob("*.yaml") if path.name not in ("kustomization.yaml", "adapter-values.yaml")]
    return [*own, *directory.glob("dashboards/*.json")]
