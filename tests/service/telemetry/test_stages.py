import time
from itertools import pairwise

from service.telemetry.metrics import TABLE, Metrics
from service.telemetry.stages import Stages


def test_stages_are_timed_and_observed() -> None:
    metrics = Metrics().of("m")
    stages = Stages(metrics)
    stages.end("parse")
    stages.add("model", 0.25)
    time.sleep(0.26)
    stages.end("respond")
    timings = stages.milliseconds()
    assert list(timings) == ["parse", "model", "respond", "total"]
    assert timings["model"] == 250.0
    assert sum(timings.values()) - timings["total"] <= timings["total"] + 0.002
    assert timings["respond"] >= 10  # from where the model's time ended
    sums = [
        metrics.registry.get_sample_value(f"{TABLE['stages'].name}_sum", {"stage": stage, "model": "m"})
        for stage in ("parse", "model")
    ]
    assert sums[1] == 0.25
    assert sums[0] is not None
    assert abs(sums[0] * 1e3 - timings["parse"]) < 0.001


def test_stages_follow_each_other_and_make_a_server_timing_header() -> None:
    stages = Stages(Metrics().of("m"))
    stages.end("parse")
    stages.add("queue", 0.5)
    stages.add("model", 0.25)
    starts_and_ends = [(one.start, one.end) for one in stages.intervals]
    assert starts_and_ends[0][0] == stages.began
    assert all(end == start for (_, end), (start, _) in pairwise(starts_and_ends))
    parts = stages.server_timing().split(", ")
    assert parts[1:3] == ["queue;dur=500", "model;dur=250"]
    assert [part.split(";dur=")[0] for part in parts] == ["parse", "queue", "model", "total"]
