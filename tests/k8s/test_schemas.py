"""Everything that kustomize makes is what the API servers accept: no unknown field, no wrong type."""

import json
from functools import cache
from pathlib import Path

import jsonschema
import kubernetes_validate
import yaml

from tests.k8s.manifests import K8S, Manifest, pods

VERSIONS = ("1.35", "1.37")  # of Kubernetes: from the first on, volumes may be images
KINDS = frozenset(  # all of them, so that none is left out unnoticed
    "ConfigMap Deployment HorizontalPodAutoscaler InferenceService Ingress Job NetworkPolicy PersistentVolumeClaim "
    "PodDisruptionBudget PodMonitor PrometheusRule RayService ScaledObject Service ServiceAccount ServingRuntime TrainJob".split()
)
MADE_BY_OPERATORS = ("RayService", "InferenceService")


def wrong(manifest: Manifest, schemas: Path) -> str | None:
    """What an API server would say."""
    return _wrong(json.dumps(manifest), schemas)


@cache
def _wrong(text: str, schemas: Path) -> str | None:
    """Of a manifest as JSON: many variants have the same ones."""
    manifest = json.loads(text)
    try:
        if manifest["kind"] == "TrainJob":
            from kubeflow_trainer_api.models.trainer_v1alpha1_train_job import TrainerV1alpha1TrainJob  # a second of imports

            read = TrainerV1alpha1TrainJob.from_dict(json.loads(text))
            return None if read is not None and read.to_dict() == manifest else "a field that the CRD does not know"
        if (schema := schemas / f"{manifest['kind']}.json").exists():
            jsonschema.validate(manifest, json.loads(schema.read_text(encoding="utf-8")))
        else:
            for version in VERSIONS:
                kubernetes_validate.validate(manifest, version, strict=True)
    except (jsonschema.ValidationError, kubernetes_validate.ValidationError, ValueError) as error:
        return str(error).splitlines()[0]
    return None


def test_every_manifest_keeps_to_its_schema(built: dict[str, list[Manifest]], schemas: Path) -> None:
    made = [(name, manifest) for name, manifests in built.items() for manifest in manifests]
    assert {manifest["kind"] for _, manifest in made} == KINDS
    assert [f"{name}: {m['kind']}: {error}" for name, m in made if (error := wrong(m, schemas))] == []


def test_every_pod_that_an_operator_makes_keeps_to_its_schema(built: dict[str, list[Manifest]], schemas: Path) -> None:
    found = {name: pod for manifests in built.values() for name, pod in pods(manifests) if name.startswith(MADE_BY_OPERATORS)}
    assert set(found) == {"RayService/keyblock/head", "RayService/keyblock/cpu", "InferenceService/keyblock"}
    for name, pod in found.items():
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "made"}, "spec": pod}
        assert wrong(manifest, schemas) is None, name
        pod["containers"][0]["imagePolicy"] = "Always"
        assert wrong(manifest, schemas), name


def test_a_namespace_alone(schemas: Path) -> None:
    namespace = yaml.safe_load((K8S / "namespace.yaml").read_text(encoding="utf-8"))
    assert wrong(namespace, schemas) is None
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
