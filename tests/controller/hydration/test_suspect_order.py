"""Suspects at the hydration gate: after all others, one at a time, in turn.

Blame and the gate together, over days: whoever kills its replica is found, and all others hydrate, however long each
says nothing.

    minute by minute   gate ─► slots ─► hydrated, or the replica dies ─► blamed ─► the next process, a new gate
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.controller.hydration.test_hydration_gate import (
    Standings,
    create,
    hydrate,
    index,
    output,
    owner_of,
    schedule,
    scheduled_owners,
    view,
)
from tidemark_operator.controller.hydration.hydration_gate import HydrationGate
from tidemark_operator.controller.hydration.quarantine import (
    Death,
    HydrationPolicy,
    HydrationStanding,
    Suspicion,
    blamed,
)


def test_a_suspect_that_is_told_of_first_is_let_in_after_those_that_are_told_of_next() -> None:
    """A replay tells of one after the other, and nobody has a slot yet."""
    g = Standings(x=HydrationStanding.SUSPECT).gate("x", "a")
    for export in (index("x"), view("x")):
        assert g.absorb(export) == []
    assert schedule(g, "a") == ["a"]
    assert hydrate(g, "a") == ["x"]


def test_a_suspect_that_stands_still_keeps_other_suspects_waiting_and_no_others() -> None:
    """Where two suspects are beside each other no death says whose fault it was."""
    standings = Standings(concurrency=2, x=HydrationStanding.SUSPECT, y=HydrationStanding.SUSPECT)
    g = standings.gate("x", "y", "a")
    assert schedule(g, "x", "y") == ["x"]
    for minute in range(11):
        assert g.maintain(minute * 60_000) == []
    assert schedule(g, "a") == ["a"], "it keeps nobody else waiting"
    assert hydrate(g, "a") == []
    for minute in range(11, 200):
        assert g.maintain(minute * 60_000) == []
    assert g.occupants == ("x",)
    assert hydrate(g, "x") == ["y"]


def test_a_suspect_that_is_not_recorded_yet_does_not_stand_still() -> None:
    """The API server does not answer, so it is not scheduled and cannot make progress."""
    g = Standings(recorded=True, x=HydrationStanding.SUSPECT).gate("x", "a")
    schedule(g, "x")
    for minute in range(60):
        g.maintain(minute * 60_000)
    schedule(g, "a")
    assert g.occupants == ("x",)
    assert scheduled_owners(g.recorded(["x"])) == ["x"]
    for minute in range(60, 71):
        g.maintain(minute * 60_000)
    assert g.occupants == ("x", "a")


DAY = 24 * 60


@dataclass(frozen=True)
class Fate:
    """The fate of a dataflow after so many minutes in a slot, in which its progress stands still."""

    minutes: int
    kills: bool = False


class Days:
    """One replica, and an operator that forgets nothing. `hydrated`: since the process began, and when."""

    def __init__(self, **fates: Fate) -> None:
        self.fates, self.suspicions, self.now = dict(fates), dict[str, Suspicion](), 0
        self.deaths = 0
        self._begin()

    def _begin(self) -> None:
        self.hydrated, self.ages = set[str](), defaultdict[str, int](int)
        self.gate = HydrationGate(HydrationPolicy(2, self.standing), owner_of)
        for name in self.fates:
            self.gate.absorb(create(name))
        for name in self.fates:
            self._schedule(name)

    def standing(self, name: str) -> HydrationStanding:
        return self.suspicions[name].standing if name in self.suspicions else HydrationStanding.CLEAR

    def _schedule(self, name: str) -> None:
        for export in (index(name), view(name)):
            self.gate.absorb(export)

    def minute(self) -> None:
        self.now += 1
        self.gate.maintain(self.now * 60_000)
        for name in self.gate.occupants:
            self.ages[name] += 1
            if self.ages[name] >= self.fates[name].minutes:
                if self.fates[name].kills:
                    self._die()
                    return
                self._hydrate(name)

    def _hydrate(self, name: str) -> None:
        self.hydrated.add(name)
        for export in (index(name), view(name)):
            self.gate.observe(output(export, 4))
        for owner in self.gate.cleared():
            del self.suspicions[owner]

    def _die(self) -> None:
        self.deaths += 1
        death, alone = Death("r1", str(self.deaths)), len(self.gate.occupants) == 1
        for name in self.gate.occupants:
            self.suspicions[name] = blamed(self.suspicions.get(name), name, death, "", alone=alone)
            assert self.standing(name) is not HydrationStanding.QUARANTINED or self.fates[name].kills, (
                f"{name} is innocent"
            )
        self._begin()


minutes = st.integers(1, 5 * 60)
KILLS, HYDRATES = minutes.map(lambda n: Fate(n, kills=True)), minutes.map(Fate)
fates = st.lists(KILLS | HYDRATES, min_size=1, max_size=6)


@settings(max_examples=25, deadline=None)
@given(fates)
@example([Fate(15, kills=True)])
@example([Fate(15, kills=True), Fate(3), Fate(40)])
@example([Fate(70, kills=True), Fate(200)])
@example([Fate(1, kills=True), Fate(300, kills=True)])
def test_the_guilty_dataflow_is_found_and_all_others_hydrate(given: list[Fate]) -> None:
    """However long each says nothing."""
    days = Days(**{f"d{number}": fate for number, fate in enumerate(given)})
    for minute in range(20 * DAY):
        days.minute()
        if minute % DAY == 0 and _is_over(days, given):
            assert days.deaths <= 8 * len(given)
            return
    pytest.fail(f"{days.deaths} deaths, {days.suspicions}")


def _is_over(days: Days, given: list[Fate]) -> bool:
    """Dataflows that kill are quarantined, and those that can hydrate have."""
    names = {f"d{number}": fate for number, fate in enumerate(given)}
    killers = {name for name, fate in names.items() if fate.kills}
    well = {name for name, fate in names.items() if not fate.kills}
    return well <= days.hydrated and all(days.standing(name) is HydrationStanding.QUARANTINED for name in killers)
