"""Views with a refresh schedule, under all orders of events: at every time the table holds the query's result at the
last refresh, despite competing writers, lost replies and deaths."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.replica.refreshes.refresh_model import Replica, Revision, Table, Update, reached, settle
from tidemark_protocol.frontier import EMPTY_SENTINEL
from tidemark_protocol.ids import MAX_TIME, Time
from tidemark_protocol.plan.refresh import RefreshSchedule
from tidemark_replica.sinks.table.refresh_times import NEVER, RefreshTimes

LAST = 48
TIMES = st.integers(0, LAST)


@st.composite
def schedules(draw: st.DrawFn) -> RefreshTimes:
    every = draw(st.none() | st.integers(2, 15))
    at = tuple(map(Time, sorted(draw(st.sets(TIMES, min_size=int(every is None), max_size=3)))))
    return RefreshTimes(
        RefreshSchedule(every, Time(draw(TIMES)), at), draw(st.none() | st.none() | st.integers(8, LAST))
    )


HISTORIES = st.lists(st.tuples(st.integers(0, 2), TIMES, st.sampled_from([1, 1, -1])), max_size=25).map(tuple)
PARTS = ("tick", "step", "observe", "begin", "end", "lost", "compare", "fold", "crash", "another", "edit", "allow")
# what takes five parts in order, each of twelve, would hardly ever happen
ACTIONS = (*PARTS, *["turn", "beginning", "look"] * 3, "edit", "edit")
LAGS = (0, 0, 1, 3, 9)
DONE = st.tuples(st.sampled_from(ACTIONS), st.integers(0, 7), st.integers(0, 12))


class RefreshSimulation:
    """One table; inputs that are complete up to `inputs`; replicas of revisions, each allowed under its own term."""

    def __init__(self, revisions: list[tuple[tuple[Update, ...], RefreshTimes]], *, beside: bool) -> None:
        self.table, self.inputs = Table(), 1
        self._revisions = [Revision(h, r, term) for term, (h, r) in enumerate(revisions, 1)]
        self.replicas = [Replica(self._revisions[0], 0, self.table, beside=beside)]
        self.replicas[0].allow()

    def do(self, action: str, which: int, number: int) -> None:
        place = which % len(self.replicas)
        replica = self.replicas[place]
        match action:
            case "tick":
                self.inputs += number
            case "turn":
                self.inputs += number % 5
                replica.end(reply=True)
                replica.go(self.inputs)
                replica.end(reply=True)
            case "beginning":
                self.inputs += number % 3
                replica.go(self.inputs)
            case "look":
                self.inputs += number % 2
                replica.observe()
                replica.step(self.inputs)
                replica.compare()
            case "step":
                replica.step(self.inputs)
            case "observe":
                replica.observe()
            case "begin":
                replica.begin(self.inputs)
            case "end" | "lost":
                replica.end(reply=action == "end")
            case "compare":
                replica.compare()
            case "fold":
                replica.fold()
            case "allow":
                replica.allow()
            case "crash":
                self.replicas[place] = self._new(replica.revision, which, number)
                self.replicas[place].allow()
            case "another":
                self.replicas.append(self._new(replica.revision, which, number))
                self.replicas[-1].allow()
            case "edit" if replica.revision.term < len(self._revisions):
                self.replicas.append(self._new(self._revisions[replica.revision.term], which, number))
        self.table.check()

    def _new(self, revision: Revision, which: int, number: int) -> Replica:
        """From about where the table is on, mostly before it; now and then beyond, as what was before is gone."""
        upper = min(self.table.upper, self.inputs)
        until = revision.refreshes.until
        most = self.inputs - 1 if until is None else min(self.inputs, until) - 1
        as_of = max(0, min(upper - 8 + number, most))
        return Replica(revision, as_of, self.table, LAGS[which % len(LAGS)], beside=number % 3 == 0)


@settings(max_examples=400)
@given(
    revisions=st.lists(st.tuples(HISTORIES, schedules()), min_size=1, max_size=3),
    done=st.lists(DONE, min_size=10, max_size=80),
    beside=st.booleans(),
)
def test_crash_the_table_shows_the_last_refresh_at_every_time(
    revisions: list[tuple[tuple[Update, ...], RefreshTimes]], done: list[tuple[str, int, int]], beside: bool
) -> None:
    """Looked at after everything that happens; and in the end whoever is left goes on to where its inputs are."""
    simulation = RefreshSimulation(revisions, beside=beside)
    for action, which, number in done:
        simulation.do(action, which, number)

    newest = max(simulation.replicas, key=lambda r: r.revision.term)
    newest.allow()
    simulation.inputs += 1
    settle(newest, simulation.inputs)
    simulation.table.check()
    gap = newest.as_of > min(simulation.table.upper, simulation.inputs)
    if simulation.inputs > newest.as_of and not gap and simulation.table.term <= newest.revision.term:
        assert simulation.table.upper >= reached(newest, simulation.inputs)
        agrees(newest, simulation.inputs)


def agrees(writer: Replica, inputs: int) -> None:
    """One that begins beside it and never writes finds the table to be what it wants, by the second planned refresh:
    the first may be over by then, or have another of its own revision after it."""
    table, refreshes = writer.table, writer.revision.refreshes
    until = LAST + 20 if refreshes.until is None else refreshes.until
    planned = [t for t in range(inputs, until) if refreshes.last(t) == t][:2]
    if table.upper == EMPTY_SENTINEL or len(planned) < 2 or refreshes.next(planned[1] + 1) == NEVER:
        return
    beside = Replica(writer.revision, max(refreshes.last(table.upper - 1), 0), table)
    beside.allow()
    for time in [inputs, *(min(refreshes.next(t + 1), t + 4) for t in planned)]:
        settle(writer, time)
        beside.observe()
        beside.step(time)
        for _ in range(2):
            beside.fold()
            beside.compare()
    table.check()

    assert beside.progress.synced


def drawn(play: Random) -> tuple[Update, ...]:
    return tuple((play.randint(0, 2), play.randint(0, LAST), play.choice([1, 1, -1])) for _ in range(40))


@settings(max_examples=300)
@given(play=st.integers(0, 2**64 - 1).map(Random))
def test_crash_an_edit_that_is_reverted_shows_nothing_of_a_replica_that_missed_it(play: Random) -> None:
    """It has let go of what it had written before the edit, and is told at any moment to go on under the term of after
    it, beside another that begins under that term. It gives up only where somebody else has written."""
    schedule = RefreshTimes(RefreshSchedule(play.randint(4, 15), Time(play.randint(0, 9))), None)
    history, table, inputs = drawn(play), Table(), play.randint(4, 14)
    again = Revision(history, schedule, 3)
    first = Replica(Revision(history, schedule, 1), 2, table)
    first.allow()
    settle(first, inputs)
    if play.random() < 0.8:
        edited = Replica(Revision(drawn(play), schedule, 2), inputs - 1, table)
        edited.allow()
        inputs += play.randint(1, 8)
        settle(edited, inputs)
    second = Replica(again, max(table.upper - 1, 2), table)
    second.allow()

    for _ in range(60):
        inputs += play.randint(0, 1)
        if first.revision is not again and play.random() < 0.15:
            first.revision = again
            first.allow()
        if first.revision is not again and play.random() < 0.5:
            first.observe()
            first.step(inputs)
            continue
        replica = second if first.revision is not again else play.choice([first, second])
        replica.end(reply=play.random() < 0.7) if play.random() < 0.5 else replica.observe()
        replica.step(inputs) if play.random() < 0.5 else replica.begin(inputs)
        replica.compare() if play.random() < 0.5 else replica.fold()
        table.check()
    assert not first.progress.has_diverged or table.writers - {first}
    settle(first, inputs + 1)
    settle(second, inputs + 1)
    table.check()
    assert table.upper == inputs + 1


def hourly(every: int = 10, until: int | None = None) -> RefreshTimes:
    return RefreshTimes(RefreshSchedule(every), until)


def busy(start: int = 0) -> tuple[Update, ...]:
    """Something changes at every time."""
    return tuple((t % 3, t, 1) for t in range(start, LAST))


def one(refreshes: RefreshTimes, as_of: int = 3, inputs: int = 5) -> tuple[Replica, Table]:
    """A view that has been created, and written for the first time."""
    table = Table()
    replica = Replica(Revision(busy(), refreshes, 1), as_of, table)
    replica.allow()
    settle(replica, inputs)
    return replica, table


def test_a_new_view_has_contents_and_then_follows_its_inputs_without_a_step() -> None:
    """Between refreshes the upper alone moves; at a refresh there is one step, over all that has come."""
    replica, table = one(hourly())
    assert (table.upper, table.since, replica.steps) == (5, 3, 1)
    for inputs in range(6, 31):
        settle(replica, inputs)
        assert table.upper == inputs
        table.check()

    assert replica.steps == 3, "at 0 it was not there; then over 10 and over 20"
    assert {time for _, time, _ in table.updates} == {3, 10, 20}


def test_a_catch_up_over_several_refreshes_is_one_step() -> None:
    """Each of them is there as if nobody had been away."""
    replica, table = one(hourly())
    settle(replica, 37)
    table.check()

    assert replica.steps == 2
    assert {time for _, time, _ in table.updates} == {3, 10, 20, 30}


def test_crash_one_that_begins_again_between_refreshes_changes_nothing_before_the_next() -> None:
    """The table is its revision's own already: it is no first write."""
    _, table = one(hourly(), inputs=15)
    again = Replica(Revision(busy(), hourly(), 1), 12, table)
    again.allow()
    before = len(table.updates)
    settle(again, 19)
    assert (table.upper, len(table.updates)) == (19, before)
    settle(again, 21)
    table.check()

    assert table.upper == 21
    assert len(table.updates) > before


@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("begun", [1, 2])
def test_crash_a_lost_reply_to_its_own_append_is_its_own_append(begun: int, landed: bool) -> None:
    """A sink that is to go on under another term, where nobody else has written, does, whenever it had begun to write:
    the table's contents then are its own."""
    replica, table = one(hourly(), inputs=14)
    raised = replace(replica.revision, term=2)
    if begun == 2:
        replica.revision = raised
        replica.allow()
    replica.step(16)
    replica.begin(16)
    assert replica.in_flight is not None
    if landed:
        replica.end(reply=False)
    replica.in_flight = None
    replica.revision = raised
    replica.allow()
    replica.observe()
    assert not replica.progress.has_diverged
    settle(replica, 24)
    table.check()

    assert (table.upper, table.term) == (24, 2)


def test_an_edit_takes_effect_at_once() -> None:
    """A newer term: what is there is corrected at the table's upper, refresh or not."""
    _, table = one(hourly(), inputs=15)
    edited = Replica(Revision(tuple((7, t, 1) for t in range(LAST)), hourly(), 2), 12, table)
    edited.allow()
    settle(edited, 17)
    table.check()

    assert table.reigns[-1][0] == 15


def test_an_unplanned_refresh_is_compared_once() -> None:
    """By a replica that did not make it, until both are past the next planned one."""
    _, table = one(hourly(), inputs=25)
    edited = Revision(tuple((7, t, 1) for t in range(LAST)), hourly(), 2)
    first, second = (Replica(edited, 11, table) for _ in range(2))
    for replica in (first, second):
        replica.step(25)
    first.allow()
    second.allow()
    settle(first, 27)
    for inputs in range(27, 31):
        second.observe()
        second.step(inputs)
        second.compare()
        assert not second.progress.synced
        assert second.progress.comparison() is None
        settle(first, inputs)
    assert second.vain == {20}
    settle(first, 31)
    second.observe()
    second.step(31)
    second.compare()

    assert second.progress.synced
    assert second.progress.waiting_rows == 0


def test_an_older_term_beside_a_newer_upper_makes_no_first_write() -> None:
    """Whoever looked before another replica's first write, and tries then, is told of it, upper and term together."""
    table = Table()
    first, second = (Replica(Revision(busy(), hourly(), 1), 3, table) for _ in range(2))
    for replica in (first, second):
        replica.allow()
        replica.observe()
        replica.step(5)
        replica.begin(5)
    first.end(reply=True)
    second.end(reply=True)
    before = len(table.updates)
    settle(second, 9)

    assert (table.upper, len(table.updates)) == (9, before)
    assert second.progress.is_own


@given(refreshes=schedules(), times=st.lists(st.integers(0, 60), min_size=1))
@example(refreshes=hourly(), times=[MAX_TIME, MAX_TIME - 9, 0])
def test_agree_columns_of_times_and_the_schedule_itself(refreshes: RefreshTimes, times: list[int]) -> None:
    """Up to the end of time."""
    found = refreshes.round_up(np.array(times, np.int64)).tolist()
    planned = [refreshes.schedule.next(time) for time in times]

    assert found == [NEVER if p is None or p >= (refreshes.until or NEVER) else p for p in planned]
