"""The autoscalers of k8s/components: what docs/run/size.md says of their bounds, targets and pace."""

import yaml

from tests.k8s.manifests import AUTOSCALING, K8S, Manifest

PACE = {
    "scaleUp": {"stabilizationWindowSeconds": 0, "policies": [{"type": "Percent", "value": 100, "periodSeconds": 30}]},
    "scaleDown": {"stabilizationWindowSeconds": 300, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]},
}


def autoscaler(name: str) -> Manifest:
    kind = "scaledobject" if name.startswith("keda") else "horizontalpodautoscaler"
    path = K8S / "components" / name / f"{kind}.yaml"
    spec: Manifest = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]
    return spec


def test_all_go_up_by_doubling_and_down_one_by_one_between_2_and_10() -> None:
    for name in AUTOSCALING:
        spec = autoscaler(name)
        keda = spec.get("advanced", {}).get("horizontalPodAutoscalerConfig", {})
        assert keda.get("behavior", spec.get("behavior")) == PACE, name
        count = "ReplicaCount" if name.startswith("keda") else "Replicas"
        assert (spec[f"min{count}"], spec[f"max{count}"]) == (2, 10), name


def test_both_follow_what_each_alone_follows() -> None:
    (cpu,), (queue,), (keda,) = (
        autoscaler(name)["metrics" if name.startswith("hpa") else "triggers"] for name in ("hpa-cpu", "hpa-queue", "keda")
    )
    assert cpu["resource"]["target"] == {"type": "Utilization", "averageUtilization": 70}
    assert queue["pods"]["target"] == {"type": "AverageValue", "averageValue": "500m"}
    assert "[1m]" in keda["metadata"]["query"]
    assert keda["metadata"]["threshold"] == "0.5"
    assert autoscaler("hpa-both")["metrics"] == [cpu, queue]
    assert autoscaler("keda-both")["triggers"][0] == keda
    assert autoscaler("keda-both")["triggers"][1]["metadata"] == {"value": "70"}
