"""Decides which request's turn it is on the model's thread, and what each batch holds: events in, decisions out.

There is no thread, no model and no clock here: the caller reports events and the time, and carries out the decisions. The same
events lead to the same decisions, so a simulation can go through millions of them.

Work is done in rounds of a few batches, so that a new request waits for a round at most. Three of four sequences come from the task
with the least work left, the fourth from the oldest task. So a small request does not wait for a large one, and a large one goes on
however many small ones come. Then the round is sorted by graph and length and cut into batches; a batch uses one graph.
"""

import heapq
import math
from collections import deque
from collections.abc import Collection, Sequence
from typing import Generic, NamedTuple, TypeVar

from keyblock.runtime import batching
from service.pace import Pace

ROUND_BATCHES = 2  # full batches in a round: more of them sort better, fewer let new requests in sooner
TURNS_TO_OLDEST = 4  # one of this many sequences comes from the oldest task, the others from the task with the least work left
_ROUNDING = 1e-9


class Lane:
    """A graph as the schedule sees it.

    Args:
        pace: seconds per token of the graph.

    Attributes:
        most_rows: the largest number of rows of a batch, by length; lowered if a batch does not fit in memory.
        warm: whether batches may be run; tasks wait until then.
    """

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.most_rows: dict[int, int] = {}
        self.warm = False

    @property
    def batch_tokens(self) -> int:
        """Tokens of the largest batch; 1 before the warm-up."""
        return max((rows * length for length, rows in self.most_rows.items()), default=1)


class Task:
    """The sequences of one request for one graph, as the schedule sees them: their lengths, not their contents.

    Args:
        lane: the graph.
        lengths: tokens of each sequence; at least one sequence.
        urgency: numbers of sequences, the most urgent first; None: the longest first, which batches best.
        priority: tasks of a smaller one go first.
        until: deadline, in the caller's seconds: nothing more of the task is scored from then on.
    """

    def __init__(
        self,
        lane: Lane,
        lengths: Sequence[int],
        urgency: Sequence[int] | None = None,
        priority: int = 0,
        until: float = math.inf,
    ) -> None:
        self.lane = lane
        self.lengths = lengths
        self.priority = priority
        self.until = until
        # None: the longest first. They are sorted when the first is taken, to keep that work off the event loop
        self._waiting: list[int] | None = None if urgency is None else list(reversed(urgency))
        self.tokens_waiting = sum(lengths)
        self._unscored = len(lengths)
        self._finished = False

    @property
    def finished(self) -> bool:
        """Whether nobody waits for the task any more: it is answered, failed or cancelled."""
        return self._finished

    def end(self) -> None:
        """Note that nobody waits for the task any more."""
        self._finished = True

    @property
    def n_waiting(self) -> int:
        """Sequences not yet taken into a round."""
        return len(self.lengths) if self._waiting is None else len(self._waiting)

    @property
    def seconds_waiting(self) -> float:
        """Estimated time of the waiting sequences at the measured pace, since the cost of a token differs between models."""
        return self.lane.pace.estimate(self.tokens_waiting)

    @property
    def complete(self) -> bool:
        """Whether every sequence is scored."""
        return not self._unscored

    def skip(self, known: Collection[int]) -> None:
        """Leave out these sequences, which need no run; to be used before the task is accepted."""
        self._waiting = [number for number in self._last_first() if number not in known]
        self.tokens_waiting -= sum(self.lengths[number] for number in known)
        self._unscored -= len(known)

    def take(self) -> int:
        """Take the next sequence, and return its number; there must be one."""
        self._waiting = self._last_first()
        number = self._waiting.pop()
        self.tokens_waiting -= self.lengths[number]
        return number

    def count_scored(self) -> None:
        """Count one more scored sequence."""
        self._unscored -= 1

    def _last_first(self) -> list[int]:
        """The numbers of the waiting sequences, the next one last."""
        return sorted(range(len(self.lengths)), key=self.lengths.__getitem__) if self._waiting is None else self._waiting


T = TypeVar("T", bound=Task)


class Ticket(NamedTuple, Generic[T]):
    """One sequence of one task."""

    task: T
    number: int

    @property
    def length(self) -> int:
        """The number of its tokens."""
        return self.task.lengths[self.number]


class Run(NamedTuple, Generic[T]):
    """Decision: run a batch. The caller answers with `scored` or `failed`.

    Attributes:
        lane: the graph.
        tickets: the sequences, one per row.
        batch: the shape; its positions are those of `tickets`.
    """

    lane: Lane
    tickets: list[Ticket[T]]
    batch: batching.Batch

    @property
    def tasks(self) -> list[T]:
        """The tasks of these sequences, each once."""
        return list(dict.fromkeys(ticket.task for ticket in self.tickets))


class Combine(NamedTuple, Generic[T]):
    """Decision: go on with a task whose sequences are all scored. It is repeated each round until the task is over."""

    task: T


class Expire(NamedTuple, Generic[T]):
    """Decision: the task's deadline has passed, and the schedule has forgotten the task."""

    task: T


class Schedule(Generic[T]):
    """The waiting tasks, and the decisions of the round in hand.

    Attributes:
        tasks: accepted and not yet over, the oldest first. Another thread may copy the list at any time.
        turns: sequences taken so far.
        under_way: batches decided whose results are not reported yet.
    """

    def __init__(self) -> None:
        self.tasks: list[T] = []
        self._agenda: deque[Run[T] | Combine[T] | Expire[T]] = deque()
        self.turns = self.under_way = 0

    def accept(self, task: T) -> None:
        """Add a new task."""
        self.tasks.append(task)

    @property
    def ready(self) -> bool:
        """Whether there is a task that a round could work on; a task does not count if all its sequences are under way."""
        candidates = (task for task in self.tasks if task.lane.warm and not task.finished)
        return any(task.n_waiting or task.complete or not self.under_way for task in candidates)

    def forget(self) -> None:
        """Drop the tasks that are over."""
        self.tasks = [task for task in self.tasks if not task.finished]

    def begin_round(self, now: float) -> None:
        """Decide the next round. The last round must be over: `next` returned None."""
        self.forget()
        self._agenda.extend(Expire(task) for task in self.tasks if task.until <= now)
        self.tasks = [task for task in self.tasks if task.until > now]
        warm = [task for task in self.tasks if task.lane.warm]
        self._agenda.extend(Combine(task) for task in warm if task.complete)
        by_lane: dict[Lane, list[Ticket[T]]] = {}
        for ticket in self._take(warm):
            by_lane.setdefault(ticket.task.lane, []).append(ticket)
        for lane, tickets in by_lane.items():
            batches = batching.plan([ticket.length for ticket in tickets], lane.most_rows)
            self._agenda.extend(_run(lane, tickets, batch) for batch in batches)

    def next(self, now: float) -> Run[T] | Combine[T] | Expire[T] | None:
        """The next decision of this round for which somebody still waits; None when the round is over."""
        while self._agenda:
            decision = self._agenda.popleft()
            tasks = decision.tasks if isinstance(decision, Run) else [decision.task]
            if isinstance(decision, Expire) or any(not task.finished and task.until > now for task in tasks):
                self.under_way += isinstance(decision, Run)
                return decision
        return None

    def scored(self, run: Run[T]) -> None:
        """Note that a batch was run."""
        self.under_way -= 1
        for ticket in run.tickets:
            ticket.task.count_scored()
        self._agenda.extendleft(Combine(task) for task in reversed(run.tasks) if task.complete)

    def failed(self, run: Run[T], *, too_large: bool) -> list[T]:
        """Note that a batch failed. Returns the tasks that fail with it: the schedule forgets them, and the caller must end them.

        No task fails if the batch can be run again in smaller ones: these may fit in memory, and one faulty sequence then fails no
        other requests.

        Args:
            run: the failed batch.
            too_large: memory ran out: the next batches of this length are smaller from the start.
        """
        self.under_way -= 1
        halves = batching.halves(run.batch) if len(run.tickets) > 1 and (too_large or len(run.tasks) > 1) else []
        if not halves:
            self.tasks = [task for task in self.tasks if task not in run.tasks]
            return run.tasks
        if too_large:
            most = run.lane.most_rows
            most[run.batch.length] = min(most[run.batch.length], max(half.rows for half in halves))
        self._agenda.extendleft(_run(run.lane, run.tickets, half) for half in reversed(halves))
        return []

    def _take(self, tasks: list[T]) -> list[Ticket[T]]:
        """Take the sequences of the next round; `tasks` are in the order in which they came.

        Most turns go to the task with the least work left, among those of the smallest priority, so that it is soon finished. Every
        fourth turn, counted over all rounds, goes to the oldest task of any priority, so that each task makes progress.
        """
        room, oldest = float(ROUND_BATCHES), 0
        waiting = [task for task in tasks if task.n_waiting]
        least = [(task.priority, task.seconds_waiting, number) for number, task in enumerate(waiting)]
        heapq.heapify(least)
        tickets: list[Ticket[T]] = []
        while room > _ROUNDING:
            while oldest < len(waiting) and not waiting[oldest].n_waiting:
                oldest += 1
            if oldest == len(waiting):
                break
            self.turns += 1
            number = oldest if self.turns % TURNS_TO_OLDEST == 0 else _least(least, waiting)
            task = waiting[number]
            tickets.append(Ticket(task, task.take()))
            heapq.heappush(least, (task.priority, task.seconds_waiting, number))
            room -= batching.bucket(tickets[-1].length) / task.lane.batch_tokens
        return tickets


def _least(heap: list[tuple[int, float, int]], tasks: Sequence[Task]) -> int:
    """The number of the task with the least work left; the heap may also hold outdated entries of tasks."""
    while True:
        _, seconds, number = heapq.heappop(heap)
        if tasks[number].n_waiting and seconds == tasks[number].seconds_waiting:
            return number


def _run(lane: Lane, tickets: list[Ticket[T]], batch: batching.Batch) -> Run[T]:
    members = [tickets[position] for position in batch.positions]
    return Run(lane, members, batching.Batch(tuple(range(len(members))), batch.length, batch.rows))
