"""The dataflow that is blamed for the death of a replica, and what follows.

    in a hydration slot when the replica died,          once          suspect: hydrates last, and alone
    or while a hydration there ran out of memory
                                                        three times   quarantined: not scheduled before it is edited
                                                                      or released
    hydrated as a suspect                                             cleared

Several dataflows hydrate at a time, so most of those blamed for a first death are innocent. A suspect hydrates alone,
so a death then is its own. Only a death alone makes a third one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

MOST_DEATHS = 3


class HydrationStanding(Enum):
    """Whether a dataflow may hydrate: beside others, alone, or not at all."""

    CLEAR = "clear"
    SUSPECT = "suspect"
    QUARANTINED = "quarantined"


@dataclass(frozen=True)
class Death:
    """A process of a replica that ended by itself, named by its incarnation, or an attempt that ran out of memory."""

    replica: str
    incarnation: str


@dataclass(frozen=True)
class Suspicion:
    """The blame of one stored revision, named `revision`. `deaths`: in a row, the oldest first; `release`: the value of
    the release annotation at the first blame, any other value releases the revision."""

    revision: str
    deaths: tuple[Death, ...]
    release: str = ""

    @property
    def standing(self) -> HydrationStanding:
        return HydrationStanding.QUARANTINED if len(self.deaths) >= MOST_DEATHS else HydrationStanding.SUSPECT


def blamed(before: Suspicion | None, revision: str, death: Death, release: str, *, alone: bool = True) -> Suspicion:
    """The suspicion after a death. The same death twice counts once. `alone`: no other dataflow was in a slot, and the
    replica computed nothing for a client."""
    if before is None or before.revision != revision:
        return Suspicion(revision, (death,), release)
    if death in before.deaths:
        return before
    most = MOST_DEATHS if alone or before.standing is HydrationStanding.QUARANTINED else MOST_DEATHS - 1
    return replace(before, deaths=(*before.deaths, death)[-most:])


def unless_released(suspicion: Suspicion | None, release: str) -> Suspicion | None:
    """The suspicion, or None where the release annotation now has another value."""
    return None if suspicion is not None and release not in ("", suspicion.release) else suspicion


@dataclass(frozen=True)
class SlotOccupants:
    """Owners of the dataflows in the hydration slots of one process of a replica."""

    incarnation: str
    owners: tuple[str, ...]


@dataclass
class HydrationPolicy:
    """`concurrency`: slots on each replica. `standing`: of the dataflow that is installed for an owner. `recorded`:
    occupants must be recorded before they are scheduled. `clock`: milliseconds since 1970, for the history."""

    concurrency: int = 4
    standing: Callable[[str], HydrationStanding] = lambda owner: HydrationStanding.CLEAR
    recorded: bool = False
    clock: Callable[[], int] = lambda: 0
