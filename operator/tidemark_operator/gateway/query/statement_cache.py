"""What statements mean, each found out once for as long as the names in it mean the same.

    statement ──► a literal lookup?            a peek                     (literal_lookup.py)
              ──► planned before?              what was planned then
              ──► the planner                  remembered, the least recently asked forgotten
              (admission/planner_admission.py)

A namespace's statements are forgotten together when anything that they may name changes: a source's tables, or the
active revision of a Dataflow.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.catalogue.relations import catalogue, named_in, owners
from tidemark_operator.gateway.admission.planner_admission import PlannerAdmission, check_length
from tidemark_operator.gateway.query.literal_lookup import Names, recognised
from tidemark_operator.introspection.relations import relations
from tidemark_operator.planning.client import PlannerClient
from tidemark_operator.planning.revision import Parent
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Catalogue, PlannedOneShot, PlannedPeek, PlanQueryRequest, Refused

NAMESPACES, STATEMENTS, LONGEST = 64, 512, 16 * 1024
ID_PREFIX = "query/"
Meaning = PlannedPeek | PlannedOneShot


@dataclass
class _Known:
    """The names of one namespace, seen from one instance; `state` is what they were made of."""

    state: object
    catalogue: Catalogue
    names: Names
    owners: Mapping[GlobalId, Parent]
    statements: OrderedDict[str, Meaning] = field(default_factory=OrderedDict)


class Statements:
    """One per gateway; bounded in namespaces, statements and their length."""

    def __init__(self, registry: Registry, planner: PlannerClient, admission: PlannerAdmission) -> None:
        self._registry, self._planner, self._admission = registry, planner, admission
        self._known: OrderedDict[tuple[str, str | None], _Known] = OrderedDict()

    async def meaning(self, caller: str, namespace: str, sql: str, place: str | None) -> Meaning | Refused:
        """`place`: the instance whose indexes may be imported. Raises QueryRefused, PlannerUnavailable, TooMany."""
        check_length(sql)
        known = self._names(namespace, place)
        found = known.statements.get(sql)
        if found is None and (lookup := recognised(sql, known.names)) is not None:
            return lookup  # each with a key of its own: to remember them would push out what took long to plan
        if found is None:
            request = PlanQueryRequest(sql, named_in(sql, known.catalogue), ID_PREFIX)
            ask = partial(self._planner.plan_query, request)
            planned: Meaning | Refused = await self._admission.plan(caller, namespace, sql, ask)
            if isinstance(planned, Refused):
                return planned
            found = planned
        _remember(known.statements, sql, found)
        return found

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
    if len(sql) > LONGEST:
        return
    statements[sql] = meaning
    statements.move_to_end(sql)
    if len(statements) > STATEMENTS:
        statements.popitem(last=False)
