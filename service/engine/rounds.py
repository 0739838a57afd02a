"""The work of the model's thread, without the thread: jobs and models come in, batches come out, one after the other.

The caller runs the batches, and waits while there is nothing to do.
"""

from collections.abc import Iterable, Iterator

from service.engine.device import Device
from service.engine.instance import Instance
from service.engine.jobs import Job
from service.engine.runner import Runner
from service.engine.schedule import Run, Schedule
from service.engine.warming import WarmUps
from service.machine import Clock
from service.telemetry.metrics import Metrics


class Rounds:
    """The work in hand. Handing in and taking in need a lock; only the model's thread runs rounds.

    Args:
        metrics: counts batches, tokens and padding.
        device: runs the batches of graphs that work ahead.
        clock: gives the time, in the seconds that deadlines use.

    Attributes:
        runner: runs the batches that a round yields.
        warm_ups: the models that are not warm yet.
    """

    def __init__(self, metrics: Metrics, device: Device, clock: Clock) -> None:
        self._schedule: Schedule[Job] = Schedule()
        self._new: list[Job] = []  # jobs that the schedule has not accepted yet
        self._clock = clock
        self.runner = Runner(self._schedule, metrics, device, clock)
        self.warm_ups = WarmUps(metrics, clock)

    @property
    def jobs(self) -> list[Job]:
        """All jobs that are handed in and not yet forgotten, the oldest first."""
        return [*self._schedule.tasks, *self._new]

    @property
    def turns(self) -> int:
        """Sequences taken into batches so far."""
        return self._schedule.turns

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do until a job or a model comes, or a batch ends."""
        return not (self._new or self._schedule.ready or self.warm_ups or self.runner.landed)

    def submit(self, job: Job) -> None:
        """Let a job wait for the next round."""
        self._new.append(job)

    def add(self, instance: Instance, *, at_start: bool) -> None:
        """Let a model wait for its warm-up; `at_start` if the engine is not ready before it is warm."""
        self.warm_ups.add(instance, at_start=at_start)

    def forget(self) -> None:
        """Drop the jobs that are over."""
        self._schedule.forget()

    def take_in(self) -> None:
        """Let the schedule accept the jobs that were handed in."""
        for job in self._new:
            self._schedule.accept(job)
        self._new.clear()

    def round(self) -> Iterator[Run[Job]]:
        """A round: yields its batches, and does everything else itself.

        The caller must hand each batch to the runner before it takes the next. Results of batches that were under way come first.
        """
        self.runner.land_finished()
        yield from self._decided()
        self._schedule.begin_round(self._clock())
        yield from self._decided()

    def rest(self) -> Iterator[Run[Job]]:
        """The rest of earlier rounds, until no batch is under way; to be used like `round`."""
        while self._schedule.under_way:
            self.runner.land(0)
            yield from self._decided()

    def _decided(self) -> Iterator[Run[Job]]:
        """Yield batches as long as the schedule decides anything; carry out its other decisions."""
        while (decision := self._schedule.next(self._clock())) is not None:
            if isinstance(decision, Run):
                yield decision
            else:
                self.runner.do(decision)


def backlog(jobs: Iterable[Job], share: float) -> float:
    """Seconds of work that wait for the models; at most `share` of each job, since jobs take turns. Finished jobs count nothing."""
    return sum(min(seconds, share) for job in jobs if (seconds := job.seconds_waiting) and not job.finished)
