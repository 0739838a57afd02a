from service.metrics import TABLE, Metrics
from service.stages import Stages


def test_stages_are_timed_and_observed() -> None:
    metrics = Metrics()
    stages = Stages(metrics)
    stages.end("parse")
    stages.add("model", 0.25)
    stages.skip()
    stages.end("respond")
    told = stages.milliseconds()
    assert list(told) == ["parse", "model", "respond", "total"]
    assert told["model"] == 250.0
    assert 0 <= told["parse"] + told["respond"] <= told["total"] + 0.002
    sums = [metrics.registry.get_sample_value(f"{TABLE['stages'].name}_sum", {"stage": stage}) for stage in ("parse", "model")]
    assert sums[1] == 0.25
    assert sums[0] is not None
    assert abs(sums[0] * 1e3 - told["parse"]) < 0.001
