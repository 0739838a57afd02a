"""Which request's turn it is on the model's thread, and what each batch holds: events in, decisions out.

There is no thread, no model and no clock here: the caller says what happened and what time it is, and does what is decided. The
same events lead to the same decisions, so that a simulation can go through millions of them.

Work is done in rounds of a few batches, so that a newcomer waits for a round at most. Three of four sequences are of the task with
the least left to do, the fourth of the oldest one: a small request does not wait for a large one, and a large one gets on however
many small ones come. Then the round is sorted by graph and length and cut into batches; a batch is of one graph.
"""

import heapq
import math
from collections import deque
from collections.abc import Collection, Sequence
from typing import Generic, NamedTuple, TypeVar

from keyblock.runtime import batching
from service.pace import Pace

ROUND_BATCHES = 2  # full batches in a round: more sorts better, fewer lets newcomers in sooner
TURNS_TO_OLDEST = 4  # of so many sequences, one is of the oldest task, the others of the one with the least left to do
_ROUNDING = 1e-9


class Lane:
    """A graph as the schedule sees it.

    Args:
        pace: of the graph, a token.

    Attributes:
        most_rows: of a batch, by length; lowered where a batch does not fit in memory.
        warm: whether batches may be run; tasks wait until then.
    """

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.most_rows: dict[int, int] = {}
        self.warm = False

    @property
    def batch_tokens(self) -> int:
        """Of the largest batch; 1 before the warm-up."""
        return max((rows * length for length, rows in self.most_rows.items()), default=1)


class Task:
    """The sequences of one request for one graph, as the schedule sees them: their lengths, not their contents.

    Args:
        lane: the graph.
        lengths: tokens of each sequence; at least one sequence.
        urgency: numbers of sequences, the first to be scored first; none: the longest first, which batches best.
        priority: tasks of a smaller one go first.
        until: from this time on nothing more of it is scored.
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
        # the longest first: sorted when the first is taken, since that is no work for the event loop
        self._waiting: list[int] | None = None if urgency is None else list(reversed(urgency))
        self.tokens_waiting = sum(lengths)
        self._unscored = len(lengths)
        self._over = False

    @property
    def over(self) -> bool:
        """Whether nobody waits for it any more: answered, failed or cancelled."""
        return self._over

    def end(self) -> None:
        """Nobody waits for it any more."""
        self._over = True

    @property
    def n_waiting(self) -> int:
        """Sequences not yet taken into a round."""
        return len(self.lengths) if self._waiting is None else len(self._waiting)

    @property
    def seconds_waiting(self) -> float:
        """What these are going to take at the measured pace: models differ in what a token costs."""
        return self.lane.pace.estimate(self.tokens_waiting)

    @property
    def complete(self) -> bool:
        """Whether every sequence is scored."""
        return not self._unscored

    def skip(self, known: Collection[int]) -> None:
        """These sequences need no run; before the task is accepted."""
        self._waiting = [number for number in self._last_first() if number not in known]
        self.tokens_waiting -= sum(self.lengths[number] for number in known)
        self._unscored -= len(known)

    def take(self) -> int:
        """The number of the next sequence; there must be one."""
        self._waiting = self._last_first()
        number = self._waiting.pop()
        self.tokens_waiting -= self.lengths[number]
        return number

    def count_scored(self) -> None:
        """One more sequence is scored."""
        self._unscored -= 1

    def _last_first(self) -> list[int]:
        """The numbers of the sequences that wait."""
        return sorted(range(len(self.lengths)), key=self.lengths.__getitem__) if self._waiting is None else self._waiting


T = TypeVar("T", bound=Task)


class Ticket(NamedTuple, Generic[T]):
    """One sequence of one task."""

    task: T
    number: int

    @property
    def length(self) -> int:
        """Its tokens."""
        return self.task.lengths[self.number]


class Run(NamedTuple, Generic[T]):
    """Decided: run a batch; answered by `scored` or `failed`.

    Attributes:
        lane: the graph.
        tickets: the sequences, one a row.
        batch: the shape; its positions are those of `tickets`.
    """

    lane: Lane
    tickets: list[Ticket[T]]
    batch: batching.Batch

    @property
    def tasks(self) -> list[T]:
        """Whose sequences these are, each once."""
        return list(dict.fromkeys(ticket.task for ticket in self.tickets))


class Combine(NamedTuple, Generic[T]):
    """Decided: go on with a task whose sequences are all scored. It is asked for again each round until the task is over."""

    task: T


class Expire(NamedTuple, Generic[T]):
    """Decided: the task's time is up, and the schedule has forgotten it."""

    task: T


class Schedule(Generic[T]):
    """The tasks that wait, and the decisions of the round in hand.

    Attributes:
        tasks: accepted and not yet over, the oldest first. Another thread may copy it at any time.
        turns: sequences taken so far.
        under_way: batches decided, of which it is not known yet what came of them.
    """

    def __init__(self) -> None:
        self.tasks: list[T] = []
        self._agenda: deque[Run[T] | Combine[T] | Expire[T]] = deque()
        self.turns = self.under_way = 0

    def accept(self, task: T) -> None:
        """A task came."""
        self.tasks.append(task)

    @property
    def ready(self) -> bool:
        """Whether there is a task that a round could take up; not one all of which is under way."""
        could = (task for task in self.tasks if task.lane.warm and not task.over)
        return any(task.n_waiting or task.complete or not self.under_way for task in could)

    def forget(self) -> None:
        """Keep nothing of the tasks that are over."""
        self.tasks = [task for task in self.tasks if not task.over]

    def begin_round(self, now: float) -> None:
        """Decide what the next round does. The last round must be over: `next` gave None."""
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
        """The next decision of this round that somebody still waits for; None when the round is over."""
        while self._agenda:
            decision = self._agenda.popleft()
            tasks = decision.tasks if isinstance(decision, Run) else [decision.task]
            if isinstance(decision, Expire) or any(not task.over and task.until > now for task in tasks):
                self.under_way += isinstance(decision, Run)
                return decision
        return None

    def scored(self, run: Run[T]) -> None:
        """A batch was run."""
        self.under_way -= 1
        for ticket in run.tickets:
            ticket.task.count_scored()
        self._agenda.extendleft(Combine(task) for task in reversed(run.tasks) if task.complete)

    def failed(self, run: Run[T], *, too_large: bool) -> list[T]:
        """A batch failed; the tasks that fail with it, which the schedule forgets.

        None where the batch can be run in smaller ones: they may fit the memory, and one sequence at fault takes no others down.
        The caller ends those that are given.

        Args:
            run: what failed.
            too_large: memory ran out: the next batches of its length are smaller from the start.
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
        """Sequences of the next round; `tasks` in the order in which they came.

        Most turns are for the task with the least left to do, of the smallest priority: it is soon out of the way. Every fourth,
        counted over all rounds, is for the oldest task of any priority: whatever comes, each gets on.
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
    """The number of the task with the least left to do; the heap may hold what tasks had left before."""
    while True:
        _, seconds, number = heapq.heappop(heap)
        if tasks[number].n_waiting and seconds == tasks[number].seconds_waiting:
            return number


def _run(lane: Lane, tickets: list[Ticket[T]], batch: batching.Batch) -> Run[T]:
    members = [tickets[position] for position in batch.positions]
    return Run(lane, members, batching.Batch(tuple(range(len(members))), batch.length, batch.rows))
