"""Suspects at the gate: after all others, one at a time, and each at its turn.

Blame and the gate together, over days: whoever kills its replica is found, and all others hydrate, however long each
says nothing and whatever else comes and goes.

    minute by minute   gate ─► slots ─► hydrated, or the replica dies ─► blamed ─► the next process, a new gate
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.controller.test_hydration_gate import (
    Standings,
    create,
    hydrate,
    index,
    output,
    owner_of,
    schedule,
    through,
    view,
)
from tests.controller.worlds import EMPTY, R1, World
from tidemark_operator.controller.hydration.hydration_gate import HydrationGate, Outwaited
from tidemark_operator.controller.hydration.quarantine import Death, Precautions, Standing, Suspicion, blamed
from tidemark_protocol.messages import commands as c


def test_a_suspect_that_is_told_of_first_is_let_in_after_those_that_are_told_of_next() -> None:
    """A replay tells of one after the other, and nobody has a slot yet."""
    g = Standings(x=Standing.SUSPECT).gate("x", "a")
    for export in (index("x"), view("x")):
        assert g.absorb(export) == []
    assert schedule(g, "a") == ["a"]
    assert hydrate(g, "a") == ["x"]


def test_suspects_wait_for_each_other_longer_than_others_for_them() -> None:
    """For an hour: where two of them are beside each other nobody knows who killed the replica. It is told once."""
    standings = Standings(concurrency=2, x=Standing.SUSPECT, y=Standing.SUSPECT)
    g = standings.gate("x", "y", "a")
    assert schedule(g, "x", "y") == ["x"]
    for minute in range(11):
        assert g.look(minute * 60_000) == []
    assert schedule(g, "a") == ["a"], "it keeps nobody else waiting"
    assert hydrate(g, "a") == []
    for minute in range(11, 60):
        assert g.look(minute * 60_000) == []
    assert g.occupants == ("x",)
    assert g.outwaited() == [Outwaited("x", 1)]
    assert through(g.look(60 * 60_000)) == ["y"]
    assert g.outwaited() == []


def test_who_was_waited_for_in_vain_comes_after_other_suspects_and_is_waited_for_twice_as_long() -> None:
    """The next process knows."""
    standings = Standings(concurrency=2, x=Standing.SUSPECT, y=Standing.SUSPECT)
    standings.precautions.outwaited = {"x": 2, "y": 0}.__getitem__
    g = standings.gate("x", "y", "a")
    assert schedule(g, "x", "y") == ["y"]
    assert hydrate(g, "y") == ["x"]
    schedule(g, "a")
    for minute in range(40):
        assert g.look(minute * 60_000) == []
    assert through(g.look(40 * 60_000)) == ["a"]
    assert g.outwaited() == [Outwaited("x", 3)]


def test_suspects_wait_no_longer_than_an_hour_while_others_keep_coming() -> None:
    """Then whoever comes waits for one of them."""
    standings = Standings(concurrency=2, x=Standing.SUSPECT, y=Standing.SUSPECT)
    g = standings.gate("x", "y", *(f"a{minute}" for minute in range(200)))
    schedule(g, "a0", "x", "y")
    for minute in range(1, 61):
        assert schedule(g, f"a{minute}") == [f"a{minute}"]
        assert through(g.look(minute * 60_000)) == []
        assert hydrate(g, f"a{minute - 1}") == []
    assert through(g.look(61 * 60_000)) == []
    assert schedule(g, "a61") == []
    assert hydrate(g, "a60") == ["x"]
    assert hydrate(g, "x") == ["a61"], "one of them"
    assert through(g.look(62 * 60_000)) == []
    assert schedule(g, "a62") == ["a62"]


DAY = 24 * 60
NEVER = 1 << 60


@dataclass(frozen=True)
class Fate:
    """What becomes of a dataflow after so many minutes in a slot, of which nothing is heard before; `passing`: it goes
    when it has hydrated."""

    minutes: int
    kills: bool = False
    passing: bool = False


def test_who_is_not_scheduled_yet_is_not_waited_for_in_vain() -> None:
    """It is not written down, for the API server is away: nothing can be heard of it."""
    g = Standings(recorded=True, x=Standing.SUSPECT).gate("x", "a")
    schedule(g, "x", "a")
    assert hydrate(g, "a") == ["a"]
    for minute in range(60):
        g.look(minute * 60_000)
    assert g.outwaited() == []
    assert through(g.recorded(["x"])) == ["x"]
    for minute in range(60, 71):
        g.look(minute * 60_000)
    assert g.outwaited() == [Outwaited("x", 1)]


class Days:
    """One replica, and an operator that forgets nothing. `hydrated`: since the process began, and when."""

    def __init__(self, **fates: Fate) -> None:
        self.fates, self.suspicions, self.now = dict(fates), dict[str, Suspicion](), 0
        self.deaths = 0
        self._begin()

    def _begin(self) -> None:
        self.hydrated, self.ages = set[str](), defaultdict[str, int](int)
        self.gate = HydrationGate(Precautions(2, self.standing, outwaited=self._outwaited), owner_of)
        for name in self.fates:
            self.gate.absorb(create(name))
        for name in self.fates:
            self._schedule(name)

    def standing(self, name: str) -> Standing:
        return self.suspicions[name].standing if name in self.suspicions else Standing.CLEAR

    def _outwaited(self, name: str) -> int:
        return self.suspicions[name].outwaited if name in self.suspicions else 0

    def _schedule(self, name: str) -> None:
        for export in (index(name), view(name)):
            self.gate.absorb(export)

    def come(self, name: str, fate: Fate) -> None:
        self.fates[name] = fate
        self.gate.absorb(create(name))
        self._schedule(name)

    def minute(self) -> None:
        self.now += 1
        self.gate.look(self.now * 60_000)
        for news in self.gate.outwaited():
            suspicion = self.suspicions[news.owner]
            self.suspicions[news.owner] = replace(suspicion, outwaited=max(suspicion.outwaited, news.times))
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
        if self.fates[name].passing:
            for export in (index(name), view(name)):
                self.gate.absorb(c.AllowCompaction(export.id, EMPTY))
            del self.fates[name]

    def _die(self) -> None:
        self.deaths += 1
        death, alone = Death("r1", str(self.deaths)), len(self.gate.occupants) == 1
        for name in self.gate.occupants:
            self.suspicions[name] = blamed(self.suspicions.get(name), name, death, "", alone=alone)
            assert self.standing(name) is not Standing.QUARANTINED or self.fates[name].kills, f"{name} is innocent"
        self._begin()


def test_an_instance_tells_who_was_waited_for_in_vain() -> None:
    """Once, when it has been."""
    world = World()
    world.instance.precautions.standing = lambda owner: Standing.SUSPECT
    world.connect(R1)
    world.install()
    told = []
    for _ in range(15):
        world.now += 60_000
        told += [news for news in world.maintain() if isinstance(news, Outwaited)]
    assert told == [Outwaited("ns/d", 1)]


minutes = st.integers(1, 5 * 60)
KILLS, HYDRATES, HANGS = minutes.map(lambda n: Fate(n, kills=True)), minutes.map(Fate), st.just(Fate(NEVER))
fates = st.lists(KILLS | HYDRATES | HANGS, min_size=1, max_size=6)


@settings(max_examples=25, deadline=None)
@given(fates, st.sampled_from([0, 2, 5]))
@example([Fate(15, kills=True)], 2)
@example([Fate(15, kills=True), Fate(3), Fate(40)], 2)
@example([Fate(NEVER), Fate(70, kills=True), Fate(200)], 2)
@example([Fate(NEVER), Fate(NEVER), Fate(1, kills=True), Fate(300, kills=True)], 5)
def test_whoever_kills_is_found_and_all_others_hydrate(given: list[Fate], every: int) -> None:
    """Also while others keep coming, so that there is always one who could hydrate."""
    days = Days(**{f"d{number}": fate for number, fate in enumerate(given)})
    for minute in range(20 * DAY):
        if every and minute % every == 0:
            days.come(f"p{minute}", Fate(every + 1, passing=True))
        days.minute()
        if minute % DAY == 0 and _is_over(days, given):
            assert days.deaths <= 8 * len(given)
            return
    pytest.fail(f"{days.deaths} deaths, {days.suspicions}")


def _is_over(days: Days, given: list[Fate]) -> bool:
    """Those who kill are quarantined, and who can be hydrated is."""
    names = {f"d{number}": fate for number, fate in enumerate(given)}
    killers = {name for name, fate in names.items() if fate.kills}
    well = {name for name, fate in names.items() if not fate.kills and fate.minutes < NEVER}
    return well <= days.hydrated and all(days.standing(name) is Standing.QUARANTINED for name in killers)
