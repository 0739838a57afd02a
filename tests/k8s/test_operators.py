"""What the manifests for KubeRay and KServe say is what Ray Serve, KServe and the service read."""

from typing import Any

import pytest
import yaml

from service.app import OPERATIONS
from service.options import parse
from service.settings import Settings
from tests.k8s.manifests import Manifest, one, pods
from tests.support.rays import imported


@pytest.fixture(scope="module")
def serve_config(built: dict[str, list[Manifest]]) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load(one(built["cpu-rayservice"], "RayService")["spec"]["serveConfigV2"])
    return config


def test_ray_reads_the_configuration(serve_config: dict[str, Any]) -> None:
    """By Ray's own schema; its deployments are those of the application, each with an autoscaler of its own."""
    schema, build = imported("ray.serve.schema").ServeDeploySchema, imported("service.rayserve.deployments").build
    (application,) = schema.model_validate(serve_config).applications
    module, _, name = application.import_path.partition(":")
    assert (module, name) == (build.__module__, build.__name__)
    preparation = build(application.args)._bound_deployment
    (model,) = (one._bound_deployment for one in preparation.init_args if hasattr(one, "_bound_deployment"))
    assert {one.name for one in application.deployments} == {preparation.name, model.name}
    scaled = {one.name: one.autoscaling_config for one in application.deployments}
    assert all(scaled[name]["min_replicas"] >= 2 for name in scaled)
    assert scaled["preparation"]["target_ongoing_requests"] > scaled["model"]["target_ongoing_requests"]


def test_replicas_fit_a_worker_and_a_pod_has_the_time_to_drain(
    built: dict[str, list[Manifest]], serve_config: dict[str, Any]
) -> None:
    (application,) = serve_config["applications"]
    cpus = {one["name"]: one["ray_actor_options"]["num_cpus"] for one in application["deployments"]}
    least = {one["name"]: one["autoscaling_config"]["min_replicas"] for one in application["deployments"]}
    cluster = one(built["cpu-rayservice"], "RayService")["spec"]["rayClusterConfig"]
    (group,) = cluster["workerGroupSpecs"]
    pod = group["template"]["spec"]
    worker = int(pod["containers"][0]["resources"]["limits"]["cpu"])
    surge = 1 + max(one["max_surge_percent"] for one in application["deployments"]) / 100
    assert sum(cpus[name] * least[name] for name in cpus) * surge <= worker * group["minReplicas"], "replicas of two versions"
    assert pod["terminationGracePeriodSeconds"] > application["args"]["shutdown_seconds"]
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"


@pytest.mark.parametrize("variant", ["redis", "redis-cluster", "kserve-redis", "rayservice-redis", "rayservice-redis-cluster"])
def test_the_store_can_be_reached(built: dict[str, list[Manifest]], variant: str) -> None:
    policy = one(built[f"cpu-{variant}"], "NetworkPolicy", "keyblock-ray" if "ray" in variant else "keyblock")
    assert 6379 in [port["port"] for rule in policy["spec"]["egress"] for port in rule.get("ports", ())]


@pytest.mark.parametrize("component", ["kserve", "kserve-hub", "kserve-upstream"])
def test_kserve_starts_the_service_as_it_asks_it(built: dict[str, list[Manifest]], component: str) -> None:
    """The flags are flags, probes ask paths of the open inference protocol that are served, at the port that is listened at."""
    manifests = built[f"cpu-{component}"]
    (pod,) = (pod for name, pod in pods(manifests) if name.startswith("InferenceService"))
    (container,) = pod["containers"]
    settings = Settings(**parse(container["args"]))
    assert (settings.host, settings.port) == ("0.0.0.0", container["ports"][0]["containerPort"])
    asked = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")]
    assert [probe["path"] for probe in asked] == ["/v2/health/live", "/v2/health/ready", "/v2/health/live"]
    assert {probe["port"] for probe in asked} == {settings.port}
    assert {probe["path"] for probe in asked} <= set(OPERATIONS)
    policy = one(manifests, "NetworkPolicy")["spec"]
    assert [allowed["port"] for rule in policy["ingress"] for allowed in rule["ports"]] == [settings.port] * 2
    selectors = policy["podSelector"], one(manifests, "PodDisruptionBudget")["spec"]["selector"]
    labels = one(manifests, "ServingRuntime")["spec"]["labels"].items()
    assert all(selector["matchLabels"].items() <= labels for selector in selectors)


def test_kserve_s_pods_are_scraped(built: dict[str, list[Manifest]]) -> None:
    manifests = built["monitoring-kserve"]
    runtime, monitor = one(manifests, "ServingRuntime")["spec"], one(manifests, "PodMonitor")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= runtime["labels"].items()
    assert monitor["podMetricsEndpoints"][0]["port"] in [port["name"] for port in runtime["containers"][0]["ports"]]


def test_where_kserve_s_bundle_comes_from(built: dict[str, list[Manifest]], monkeypatch: pytest.MonkeyPatch) -> None:
    def of(component: str) -> tuple[Manifest, dict[str, str]]:
        manifests = built[f"cpu-{component}"]
        (pod,) = (pod for name, pod in pods(manifests) if name.startswith("InferenceService"))
        environment = {entry["name"]: entry["value"] for entry in pod["containers"][0]["env"]}
        return one(manifests, "InferenceService")["spec"]["predictor"]["model"], environment

    for component, uri in (("kserve", "pvc://keyblock-work/bundles/mine"), ("kserve-hub", "pvc://keyblock-hub/bundle")):
        model, environment = of(component)
        assert model["storageUri"] == uri
        assert environment == {"KEYBLOCK_BUNDLE": "/mnt/models"}
    model, environment = of("kserve-upstream")
    assert "storageUri" not in model
    command = model["command"]
    assert command == ["env", "-u", "KEYBLOCK_BUNDLE", "keyblock-serve"]
    monkeypatch.setenv("KEYBLOCK_UPSTREAM", environment["KEYBLOCK_UPSTREAM"])
    assert not Settings().serves_bundles


def test_the_import_writes_what_kserve_serves(built: dict[str, list[Manifest]]) -> None:
    job = one(built["cpu-kserve-hub"], "Job", "keyblock-import")["spec"]["template"]["spec"]
    command, (mount, *_) = job["containers"][0]["command"], job["containers"][0]["volumeMounts"]
    claim = next(volume for volume in job["volumes"] if volume["name"] == mount["name"])["persistentVolumeClaim"]["claimName"]
    uri = one(built["cpu-kserve-hub"], "InferenceService")["spec"]["predictor"]["model"]["storageUri"]
    assert f"pvc://{claim}{command[command.index('--out') + 1].removeprefix(mount['mountPath'])}" == uri
    assert one(built["cpu-kserve-hub"], "PersistentVolumeClaim", claim)
