"""What statements mean, each found out once for as long as the names in it mean the same.

    statement ──► a literal lookup?            a peek                     (lookups.py)
              ──► planned before?              what was planned then
              ──► it failed at it, just now?   what it said then: each try may cost a process that others wait for
              ──► the planner                  remembered, the least recently asked forgotten

A namespace's statements are forgotten together when anything that they may name changes: a source's tables, or the
active revision of a Dataflow.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.catalogue.relations import catalogue, owners
from tidemark_operator.gateway.lookups import Names, recognised
from tidemark_operator.gateway.turns import Turns
from tidemark_operator.introspection.relations import relations
from tidemark_operator.planning.blame import is_planners_fault, pause_ms
from tidemark_operator.planning.client import PlannerClient
from tidemark_operator.planning.revision import Parent
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.planning import Catalogue, PlannedOneShot, PlannedPeek, PlanQueryRequest, Refused

NAMESPACES, STATEMENTS, LONGEST = 64, 512, 16 * 1024
ID_PREFIX = "query/"
Meaning = PlannedPeek | PlannedOneShot
K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class Failed:
    """The planner failed at it `tried` times in a row; it is asked again from `again` (monotonic seconds) on."""

    refused: Refused
    tried: int
    again: float


@dataclass
class _Known:
    """The names of one namespace, seen from one instance; `state` is what they were made of."""

    state: object
    catalogue: Catalogue
    names: Names
    owners: Mapping[GlobalId, Parent]
    statements: OrderedDict[str, Meaning] = field(default_factory=OrderedDict)
    failed: OrderedDict[bytes, Failed] = field(default_factory=OrderedDict)


class Statements:
    """One per gateway; bounded in namespaces, statements and their length."""

    def __init__(
        self,
        registry: Registry,
        planner: PlannerClient,
        turns: Turns,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock`: seconds, of any beginning."""
        self._registry, self._planner, self._turns, self._clock = registry, planner, turns, clock
        self._known: OrderedDict[tuple[str, str | None], _Known] = OrderedDict()

    async def meaning(self, caller: str, namespace: str, sql: str, place: str | None) -> Meaning | Refused:
        """`place`: the instance whose indexes may be imported. Raises PlannerUnavailable, TooMany."""
        known = self._names(namespace, place)
        found = known.statements.get(sql)
        if found is None and (lookup := recognised(sql, known.names)) is not None:
            return lookup  # each with a key of its own: to remember them would push out what took long to plan
        if found is None:
            planned = self._failed_at(known, sql) or await self._plan(caller, known, sql)
            if isinstance(planned, Refused):
                return planned
            found = planned
        _remember(known.statements, sql, found)
        return found

    async def _plan(self, caller: str, known: _Known, sql: str) -> Meaning | Refused:
        async with self._turns.turn(caller):
            if refused := self._failed_at(known, sql):  # while this one waited
                return refused
            planned = await self._planner.plan_query(PlanQueryRequest(sql, known.catalogue, ID_PREFIX))
        if isinstance(planned, Refused) and is_planners_fault(planned):
            before = known.failed.get(_key(sql))
            tried = before.tried + 1 if before else 1
            _put(known.failed, _key(sql), Failed(planned, tried, self._clock() + pause_ms(tried) / 1000))
        return planned

    def _failed_at(self, known: _Known, sql: str) -> Refused | None:
        """What the planner said of it, if it is not to be asked again yet."""
        failed = known.failed.get(_key(sql))
        return failed.refused if failed is not None and self._clock() < failed.again else None

    def owners(self, namespace: str, place: str | None) -> Mapping[GlobalId, Parent]:
        """Whose each relation is now: known for as long as nothing changes, since every lookup asks."""
        return self._names(namespace, place).owners

    def _names(self, namespace: str, place: str | None) -> _Known:
        sources, dataflows = self._registry.sources(namespace), self._registry.dataflows(namespace)
        state = ([(s.key, s.pinned) for s in sources], [(d.key, d.instance, d.active) for d in dataflows])
        known = self._known.get((namespace, place))
        if known is None or known.state != state:
            objects = catalogue(sources, dataflows, instance=place)
            names = Catalogue((*objects.relations, *relations()))
            known = self._known[namespace, place] = _Known(state, names, Names.of(names), owners(sources, dataflows))
        self._known.move_to_end((namespace, place))
        if len(self._known) > NAMESPACES:
            self._known.popitem(last=False)
        return known


def _remember(statements: OrderedDict[str, Meaning], sql: str, meaning: Meaning) -> None:
    if len(sql) <= LONGEST:
        _put(statements, sql, meaning)


def _put(known: OrderedDict[K, V], key: K, value: V) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > STATEMENTS:
        known.popitem(last=False)


def _key(sql: str) -> bytes:
    """As long texts fail as short ones."""
    return hashlib.sha256(sql.encode("utf-8", "surrogatepass")).digest()
