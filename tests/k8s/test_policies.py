"""Every pod of KeyBlock keeps to the Pod Security Standard `restricted`, and to what an operator expects beyond it."""

import re

from keyblock import __version__
from tests.k8s.manifests import Manifest, containers, one, pods

RESTRICTED_VOLUMES = {"configMap", "downwardAPI", "emptyDir", "image", "persistentVolumeClaim", "projected", "secret"}
PINNED = re.compile(r"^[\w./-]+(:\d+)?[\w./-]*(:(?!latest)[\w.-]+|@sha256:[0-9a-f]{64})$")


def violations(pod: Manifest) -> list[str]:
    """What is wrong with a pod spec; nothing when all is well."""
    return [*pod_violations(pod), *(f"{one['name']}: {wrong}" for one in containers(pod) for wrong in container_violations(one))]


def pod_violations(pod: Manifest) -> list[str]:
    context = pod.get("securityContext", {})
    checks = {
        "may run as root": context.get("runAsNonRoot") is True and context.get("runAsUser", 0) > 0,
        "no seccomp profile": context.get("seccompProfile", {}).get("type") == "RuntimeDefault",
        "has the API's token": pod.get("automountServiceAccountToken") is False,
        "takes the variables of services for settings": pod.get("enableServiceLinks") is False,
        "is in the host's namespaces": not any(pod.get(name) for name in ("hostNetwork", "hostPID", "hostIPC")),
        "an emptyDir without a limit": all(v["emptyDir"].get("sizeLimit") for v in pod.get("volumes", ()) if "emptyDir" in v),
        "a volume that is not allowed": all(set(v) - {"name"} <= RESTRICTED_VOLUMES for v in pod.get("volumes", ())),
    }
    return [wrong for wrong, kept in checks.items() if not kept]


def container_violations(container: Manifest) -> list[str]:
    context, resources = container.get("securityContext", {}), container.get("resources", {})
    asked, limits = resources.get("requests", {}), resources.get("limits", {})
    checks = {
        "may gain privileges": context.get("allowPrivilegeEscalation") is False and not context.get("privileged"),
        "keeps capabilities": context.get("capabilities") == {"drop": ["ALL"]},
        "writes into its root file system": context.get("readOnlyRootFilesystem") is True,
        "asks for no CPU or memory": {"cpu", "memory"} <= set(asked),
        "has no limit of CPU or memory": {"cpu", "memory"} <= set(limits),
        "an image that moves": PINNED.match(container.get("image", "")) is not None,
        "shares a port of the node": not any("hostPort" in port for port in container.get("ports", ())),
    }
    return [wrong for wrong, kept in checks.items() if not kept]


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
