"""Who is blamed for the death of a replica, and what follows from it.

    in the slot when a replica died   once         suspect: hydrates last, and alone
    (or what ran out of memory there)
                                      three times  quarantined: not scheduled, until it is edited or released
    hydrated as a suspect                          cleared

Several hydrate at once, so most who are blamed for a first death are innocent; alone, only the guilty are blamed again.
Who says nothing for so long that others begin beside it is outwaited: it is waited for twice as long the next time, and
after all others, so that sooner or later each is alone for as long as it needs, to hydrate or to kill
(hydration_gate.py). Many replicas may die of the same one at first, before anybody is suspected: whoever shared all
those slots with it is a suspect, however many they were. Only a death alone makes three.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

MOST_DEATHS = 3


class Standing(Enum):
    CLEAR = "clear"
    SUSPECT = "suspect"
    QUARANTINED = "quarantined"


@dataclass(frozen=True)
class Death:
    """An incarnation of a replica that ended by itself, or an attempt of one that ran out of memory."""

    replica: str
    incarnation: str


@dataclass(frozen=True)
class Suspicion:
    """Of a stored revision, by its name. `deaths`: one after the other, while it was hydrating; `release`: what the
    annotation said when it was first blamed: another value releases it. `outwaited`: how often others could begin
    beside it, for nothing was heard of it."""

    revision: str
    deaths: tuple[Death, ...]
    release: str = ""
    outwaited: int = 0

    @property
    def standing(self) -> Standing:
        return Standing.QUARANTINED if len(self.deaths) >= MOST_DEATHS else Standing.SUSPECT


def blamed(before: Suspicion | None, revision: str, death: Death, release: str, *, alone: bool = True) -> Suspicion:
    """After a death; told twice of the same one, it is one. `alone`: nobody else was in a slot there, and nothing was
    computed for a client."""
    if before is None or before.revision != revision:
        return Suspicion(revision, (death,), release)
    if death in before.deaths:
        return before
    most = MOST_DEATHS if alone or before.standing is Standing.QUARANTINED else MOST_DEATHS - 1
    return replace(before, deaths=(*before.deaths, death)[-most:])


def unless_released(suspicion: Suspicion | None, release: str) -> Suspicion | None:
    """What is left of it, given what the annotation says now."""
    return None if suspicion is not None and release not in ("", suspicion.release) else suspicion


@dataclass(frozen=True)
class Occupied:
    """Who is in the hydration slots of a process of a replica."""

    incarnation: str
    owners: tuple[str, ...]


@dataclass
class Precautions:
    """How dataflows are let into their hydration. `standing` and `outwaited`: of what is installed under that name.
    `recorded`: who is in a slot must be written down before it is scheduled."""

    concurrency: int = 4
    standing: Callable[[str], Standing] = lambda owner: Standing.CLEAR
    recorded: bool = False
    outwaited: Callable[[str], int] = lambda owner: 0
