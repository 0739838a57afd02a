"""The worker of any engine: it loads a stage once, does shards, and reports a problem in one line."""

from bulk.errors import one_line
from bulk.stages import Job, Stage


class Worker:
    """Does shards. It raises no errors: an engine would show the traceback, or retry for ever.

    Args:
        stage: the kind of work.
        job: the job that the shards belong to.
        attempts: times that a shard is tried.
    """

    def __init__(self, stage: type[Stage], job: Job, attempts: int) -> None:
        self._job, self._attempts = job, attempts
        self._stage: Stage | None = None
        self._problem = ""
        try:
            self._stage = stage(job)
        except Exception as error:
            self._problem = one_line(error)

    def do(self, shard: int) -> str:
        """Do a shard. Returns "" if it is done, else the problem of the last attempt."""
        if self._stage is None:
            return self._problem
        problem = ""
        for _ in range(self._attempts):
            try:
                if not self._stage.whole(self._job, shard):  # an earlier worker may have written it and died before its answer
                    self._stage(shard)
            except Exception as error:
                problem = f"shard {shard} failed {self._attempts} times: {one_line(error)}"
            else:
                return ""
        return problem
