"""A worker of whatever engine: it loads a stage once, does shards, and says in one line what went wrong."""

from bulk.errors import one_line
from bulk.stages import Job, Stage


class Worker:
    """Does shards. No error leaves it: an engine would show its trace, or try for ever.

    Args:
        stage: what to do.
        job: of what.
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
        """Do a shard; what went wrong the last time that it was tried, or "" where it is done."""
        if self._stage is None:
            return self._problem
        problem = ""
        for _ in range(self._attempts):
            try:
                if not self._stage.whole(self._job, shard):  # a worker before may have died when it had only to say so
                    self._stage(shard)
            except Exception as error:
                problem = f"shard {shard} failed {self._attempts} times: {one_line(error)}"
            else:
                return ""
        return problem
