"""Whose turn it is, told without a model, a thread or a clock."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from keyblock.runtime.batching import capped
from service.pace import Pace
from service.queue.schedule import ROUND_BATCHES, TURNS_TO_OLDEST, Combine, Expire, Lane, Run, Schedule, Task, Ticket

CAP = 512  # tokens of a batch


def lane(seconds_per_token: float = 1e-3, rows: int | None = None) -> Lane:
    """A warm graph for sequences of up to 128 tokens."""
    made = Lane(Pace())
    made.pace.measured(1.0, seconds_per_token)
    made.most_rows = capped(128, CAP)
    if rows is not None:
        made.most_rows = dict.fromkeys(made.most_rows, rows)
    made.warm = True
    return made


def scheduled(*tasks: Task) -> Schedule[Task]:
    schedule: Schedule[Task] = Schedule()
    for task in tasks:
        schedule.accept(task)
    return schedule


def batch_of(*tasks: Task) -> tuple[Schedule[Task], Run[Task]]:
    """A schedule and the one batch of its first round."""
    schedule = scheduled(*tasks)
    schedule.begin_round(0.0)
    run = schedule.next(0.0)
    assert isinstance(run, Run)
    return schedule, run


def turns(*tasks: Task) -> list[Task]:
    """Whose the sequences are that the schedule takes, one after the other, until none waits."""
    schedule: Schedule[Task] = Schedule()
    taken: list[Task] = []
    while any(task.n_waiting for task in tasks):
        taken += [ticket.task for ticket in schedule._take(list(tasks))]
    return taken


def decisions(schedule: Schedule[Task], now: float = 0.0) -> list[Run[Task] | Combine[Task] | Expire[Task]]:
    """A round in which every batch succeeds and a task is over once it is combined."""
    schedule.begin_round(now)
    made = []
    while (decision := schedule.next(now)) is not None:
        made.append(decision)
        if isinstance(decision, Run):
            schedule.scored(decision)
        else:
            decision.task.end()
    return made


@pytest.mark.parametrize(("urgency", "order"), [(None, [1, 2, 0]), ([2, 0, 1], [2, 0, 1])])
def test_sequences_are_taken_by_length_or_urgency_and_what_waits_is_given_in_seconds(
    urgency: list[int] | None, order: list[int]
) -> None:
    lengths = [10, 30, 20]
    task = Task(lane(0.02), lengths, urgency)
    for number in order:
        assert task.seconds_waiting == pytest.approx(0.02 * task.tokens_waiting)
        assert task.take() == number
    assert task.n_waiting == task.tokens_waiting == 0


def test_what_is_nearly_done_has_three_of_four_turns() -> None:
    graph = lane()
    large, small = Task(graph, [100] * 30), Task(graph, [100] * 6)
    taken = turns(large, small)
    assert [n for n, task in enumerate(taken[:8], 1) if task is large] == [4, 8], "the oldest has every fourth"
    assert taken.count(large) == 30
    large, small = Task(graph, [100] * 30), Task(graph, [100] * 6)
    assert turns(small, large)[:6] == [small] * 6


def test_of_any_priority_the_oldest_has_every_fourth_turn_counted_over_all_rounds() -> None:
    graph = lane(rows=1)  # a round is of two sequences
    tasks = [Task(graph, [100] * 6, priority=number) for number in (2, 1, 0, 1)]
    taken = turns(*tasks)
    waiting = dict.fromkeys(tasks, 6)
    for turn, task in enumerate(taken, 1):
        live = [one for one, left in waiting.items() if left]
        assert task is live[0] if turn % TURNS_TO_OLDEST == 0 else task.priority == min(one.priority for one in live)
        waiting[task] -= 1


def test_graphs_take_turns_by_the_time_they_need() -> None:
    """The second graph takes a hundred times as long for a token: fewer tokens are not less to do."""
    slow, quick = Task(lane(0.1), [100] * 8), Task(lane(0.001), [100] * 16)
    taken = turns(slow, quick)[:8]
    assert [taken.count(task) for task in (slow, quick)] == [2, 6]


def test_a_round_is_as_long_whichever_graph_it_is_of() -> None:
    for graph, expected in ((lane(), ROUND_BATCHES * CAP // 128), (lane(rows=1), ROUND_BATCHES)):
        assert len(Schedule[Task]()._take([Task(graph, [128] * 100)])) == expected


def test_a_round_runs_full_batches_of_one_graph_and_combines_what_is_complete() -> None:
    one, two = lane(), lane()
    tasks = [Task(one, [128, 128]), Task(two, [128]), Task(one, [30, 128, 128])]
    schedule = scheduled(*tasks)
    made = decisions(schedule)
    runs = [decision for decision in made if isinstance(decision, Run)]
    assert [(run.lane is one, run.batch.length, run.batch.rows) for run in runs] == [(False, 128, 1), (True, 32, 1), (True, 128, 4)]
    assert all(ticket.task.lane is run.lane for run in runs for ticket in run.tickets)
    assert [decision.task for decision in made if isinstance(decision, Combine)] == [tasks[1], tasks[0], tasks[2]]
    assert not schedule.ready


def test_a_task_all_of_which_is_under_way_is_nothing_to_take_up() -> None:
    """Else who decides ahead would decide round after round until the batch is over; one with more to do is."""
    schedule, run = batch_of(Task(lane(), [128, 128]))
    assert (schedule.next(0.0), schedule.under_way, schedule.ready) == (None, 1, False)
    schedule.accept(Task(run.lane, [128]))
    assert schedule.ready
    schedule.scored(run)
    assert (schedule.under_way, schedule.ready) == (0, True)


def test_a_complete_task_is_combined_again_each_round_until_it_is_over() -> None:
    task = Task(lane(), [10])
    schedule, run = batch_of(task)
    schedule.scored(run)
    for _ in range(3):
        assert (schedule.next(0.0), schedule.next(0.0)) == (Combine(task), None)
        schedule.begin_round(0.0)
    task.end()
    assert decisions(schedule) == []
    assert schedule.tasks == []


def test_a_graph_that_is_cold_is_not_run() -> None:
    cold, warm = lane(), lane()
    cold.warm = False
    schedule = scheduled(Task(cold, [10]), Task(warm, [10]))
    assert {run.lane for run in decisions(schedule) if isinstance(run, Run)} == {warm}
    assert not schedule.ready
    cold.warm = True
    assert {run.lane for run in decisions(schedule) if isinstance(run, Run)} == {cold}


def test_when_its_time_is_up_a_task_expires_once() -> None:
    task = Task(lane(), [128] * 20, until=5.0)
    schedule = scheduled(task)
    schedule.begin_round(4.0)
    assert isinstance(schedule.next(4.0), Run)
    assert schedule.next(5.0) is None, "the rest of the round is in vain"
    assert decisions(schedule, 5.0) == [Expire(task)]
    assert schedule.tasks == []


def test_of_a_failed_batch_each_half_is_run_until_one_task_is_at_fault() -> None:
    graph = lane()
    tasks = [Task(graph, [100]) for _ in range(4)]
    poison = tasks[2]
    schedule, run = batch_of(*tasks)
    failed: list[Task] = []
    decision: Run[Task] | Combine[Task] | Expire[Task] | None = run
    while decision is not None:
        if isinstance(decision, Run) and poison in decision.tasks:
            failed += schedule.failed(decision, too_large=False)
        elif isinstance(decision, Run):
            schedule.scored(decision)
        decision = schedule.next(0.0)
    assert failed == [poison]
    assert [task.complete for task in tasks] == [True, True, False, True]
    assert poison not in schedule.tasks


def test_a_batch_of_one_task_fails_it_at_once_unless_memory_is_the_fault() -> None:
    schedule, run = batch_of(Task(lane(), [128] * 4))
    assert schedule.failed(run, too_large=False) == run.tasks
    schedule, run = batch_of(Task(lane(), [128] * 4))
    assert schedule.failed(run, too_large=True) == []
    assert run.lane.most_rows == capped(128, CAP) | {128: 2}, "of other lengths nothing was seen"
    half = schedule.next(0.0)
    assert isinstance(half, Run)
    assert half.batch.rows == 2


class Scheduled(RuleBasedStateMachine):
    """Requests come, are cancelled, expire and fail in any order; a model counts how often each is answered.

    Up to two batches are under way, and end in the order in which they were decided.
    """

    tasks = Bundle("tasks")

    @initialize()
    def start(self) -> None:
        self.schedule: Schedule[Task] = Schedule()
        self.lanes = [lane(), lane(0.1), lane(rows=1)]
        self.now = 0.0
        self.accepted: list[Task] = []
        self.answers: Counter[Task] = Counter()
        self.scored: Counter[Ticket[Task]] = Counter()
        self.runs: list[Run[Task]] = []

    @rule(
        target=tasks,
        number=st.integers(0, 2),
        lengths=st.lists(st.integers(1, 128), min_size=1, max_size=12),
        priority=st.integers(0, 2),
        seconds=st.none() | st.floats(0, 20),
    )
    def accept(self, number: int, lengths: list[int], priority: int, seconds: float | None) -> Task:
        until = float("inf") if seconds is None else self.now + seconds
        task = Task(self.lanes[number], lengths, priority=priority, until=until)
        self.schedule.accept(task)
        self.accepted.append(task)
        return task

    @rule(task=consumes(tasks))
    def cancel(self, task: Task) -> None:
        if not task.finished:
            self.answer(task)

    @rule(seconds=st.floats(0, 5))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: len(self.runs) < 2)
    @rule()
    def decide(self) -> None:
        decision = self.schedule.next(self.now)
        if decision is None:
            self.schedule.begin_round(self.now)
        elif isinstance(decision, Run):
            self.runs.append(decision)
        elif isinstance(decision, Combine) or not decision.task.finished:
            assert isinstance(decision, Expire) or decision.task.complete
            self.answer(decision.task)

    @precondition(lambda self: self.runs)
    @rule(seconds=st.floats(0, 2))
    def succeed(self, seconds: float) -> None:
        self.now += seconds
        run = self.runs.pop(0)
        self.scored.update(run.tickets)
        self.schedule.scored(run)

    @precondition(lambda self: self.runs)
    @rule(too_large=st.booleans())
    def fail(self, too_large: bool) -> None:
        for task in self.schedule.failed(self.runs.pop(0), too_large=too_large):
            if not task.finished:
                self.answer(task)

    def answer(self, task: Task) -> None:
        self.answers[task] += 1
        task.end()

    @invariant()
    def nothing_is_scored_or_answered_twice(self) -> None:
        assert max(self.answers.values(), default=0) <= 1
        assert max(self.scored.values(), default=0) <= 1

    @invariant()
    def a_batch_has_a_known_shape(self) -> None:
        for run in self.runs:
            assert len(run.tickets) <= run.batch.rows <= max(run.lane.most_rows[run.batch.length], run.batch.rows)
            assert all(ticket.length <= run.batch.length for ticket in run.tickets)
            assert {ticket.task.lane for ticket in run.tickets} == {run.lane}

    @invariant()
    def what_is_under_way_is_counted(self) -> None:
        assert self.schedule.under_way == len(self.runs)

    def teardown(self) -> None:
        """When nothing more comes, each accepted task is answered exactly once in a bounded number of rounds."""
        if not hasattr(self, "schedule"):
            return
        while self.runs:
            self.succeed(0.0)
        most_steps = 2 * sum(len(task.lengths) + 1 for task in self.accepted) + 10
        for _ in range(2 * most_steps):
            if self.runs:
                self.succeed(0.0)
            self.decide()
        assert [self.answers[task] for task in self.accepted] == [1] * len(self.accepted)
        assert not self.schedule.ready


TestScheduled = Scheduled.TestCase
TestScheduled.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
