"""A worker says what went wrong; nothing leaves it as an error."""

from typing import Any

from bulk.engines.worker import Worker


class Flaky:
    """Fails the first time on shard 1, always on shard 2."""

    def __init__(self, job: Any) -> None:
        self.tried: list[int] = []
        job.append(self)

    def __call__(self, shard: int) -> None:
        self.tried.append(shard)
        if shard == 2 or (shard == 1 and self.tried.count(1) == 1):
            raise OSError(28, "No space left on device")

    @staticmethod
    def whole(_: Any, shard: int) -> bool:
        return shard == 3


class Broken:
    def __init__(self, job: Any) -> None:
        raise ValueError("there is no\nsuch bundle")


def test_a_shard_is_tried_again_and_then_reported_as_failed() -> None:
    made: list[Any] = []
    worker = Worker(Flaky, made, attempts=3)  # type: ignore[arg-type]
    assert [worker.do(shard) for shard in (0, 1)] == ["", ""]
    assert worker.do(2) == "shard 2 failed 3 times: [Errno 28] No space left on device"
    assert worker.do(3) == "", "it was written before"
    assert made[0].tried == [0, 1, 1, 2, 2, 2]


def test_a_stage_that_cannot_begin_reports_an_error_for_each_shard() -> None:
    worker = Worker(Broken, None, attempts=3)  # type: ignore[arg-type]
    assert [worker.do(shard) for shard in (0, 1)] == ["there is no such bundle"] * 2
