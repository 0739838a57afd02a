"""What the model's thread does next, without the thread: jobs and models come in, batches come out, one after the other.

Whoever calls runs the batches, and waits where there is nothing to do.
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
    """The work in hand. One caller at a time hands in or takes in; rounds are one caller's.

    Args:
        metrics: counts batches, tokens and padding.
        device: runs batches whose graphs say so.
        clock: as deadlines count.

    Attributes:
        runner: does what a round yields.
        warm_ups: of models that are not warm yet.
    """

    def __init__(self, metrics: Metrics, device: Device, clock: Clock) -> None:
        self._schedule: Schedule[Job] = Schedule()
        self._new: list[Job] = []  # that the schedule has not accepted yet
        self._clock = clock
        self.runner = Runner(self._schedule, metrics, device, clock)
        self.warm_ups = WarmUps(metrics, clock)

    @property
    def jobs(self) -> list[Job]:
        """All that are handed in and not yet forgotten, the oldest first."""
        return [*self._schedule.tasks, *self._new]

    @property
    def turns(self) -> int:
        """Sequences taken into batches so far."""
        return self._schedule.turns

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do until something comes."""
        return not (self._new or self._schedule.ready or self.warm_ups or self.runner.landed)

    def submit(self, job: Job) -> None:
        """A job waits for the next round."""
        self._new.append(job)

    def add(self, instance: Instance, *, first: bool) -> None:
        """A model is to be warmed up; first: before anything is ready."""
        self.warm_ups.add(instance, first=first)

    def forget(self) -> None:
        """Keep nothing of the jobs that are over."""
        self._schedule.forget()

    def take_in(self) -> None:
        """What was handed in belongs to the next round."""
        for job in self._new:
            self._schedule.accept(job)
        self._new.clear()

    def round(self) -> Iterator[Run[Job]]:
        """A round of what waits: its batches, each to be handed to the runner before the next is asked for; all else is done here.

        What follows from batches that were under way comes first.
        """
        self.runner.land_all_over()
        yield from self._decided()
        self._schedule.begin_round(self._clock())
        yield from self._decided()

    def rest(self) -> Iterator[Run[Job]]:
        """What is left of the rounds before, until no batch is under way; to be used like `round`."""
        while self._schedule.under_way:
            self.runner.land(0)
            yield from self._decided()

    def _decided(self) -> Iterator[Run[Job]]:
        """Batches, as long as the schedule decides anything."""
        while (decision := self._schedule.next(self._clock())) is not None:
            if isinstance(decision, Run):
                yield decision
            else:
                self.runner.do(decision)


def backlog(jobs: Iterable[Job], share: float) -> float:
    """Seconds of work that wait for the models; of each job at most `share`: turns are taken. Who has gone waits for none."""
    return sum(min(seconds, share) for job in jobs if (seconds := job.seconds_waiting) and not job.over)
