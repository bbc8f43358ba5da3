"""Plans of statements, kept by text for as long as the namespace's relations do not change.

    statement ──► planned before?      the same plan
              ──► a literal lookup?    a peek                                     (literal_lookup.py)
              ──► the planner          its plan is kept, the least recently used one is dropped
                                                                                  (admission/planner_admission.py)

A namespace's plans are dropped together when a relation that they can name changes: the tables of a DataSource, or the
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
from tidemark_operator.gateway.query.literal_lookup import RelationNames, recognise
from tidemark_operator.introspection.relations import relations
from tidemark_operator.planning.client import PlannerClient
from tidemark_operator.planning.revision import Parent
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Catalogue, PlannedOneShot, PlannedPeek, PlanQueryRequest, Refused

MAX_NAMESPACES, MAX_STATEMENTS, MAX_CHARACTERS = 64, 512, 16 * 1024
ID_PREFIX = "query/"
PlannedStatement = PlannedPeek | PlannedOneShot


@dataclass
class _Known:
    """The relations of one namespace for one instance. `state`: what they were built from."""

    state: object
    catalogue: Catalogue
    names: RelationNames
    owners: Mapping[GlobalId, Parent]
    statements: OrderedDict[str, PlannedStatement] = field(default_factory=OrderedDict)


class StatementCache:
    """One per gateway; bounded in namespaces, statements and their length (characters)."""

    def __init__(self, registry: Registry, planner: PlannerClient, admission: PlannerAdmission) -> None:
        self._registry, self._planner, self._admission = registry, planner, admission
        self._known: OrderedDict[tuple[str, str | None], _Known] = OrderedDict()

    async def planned(self, caller: str, namespace: str, sql: str, place: str | None) -> PlannedStatement | Refused:
        """The plan of a statement, or the planner's refusal. `place`: the instance whose indexes it may import.

        Raises:
            QueryRefused: the text is too long.
            TooMany: too many statements wait for the planner.
            PlannerUnavailable: the planner does not answer.
        """
        check_length(sql)
        known = self._names(namespace, place)
        found = known.statements.get(sql)
        if found is None and (lookup := recognise(sql, known.names)) is not None:
            return lookup  # not kept: lookups differ in their literals, and would evict plans that took long
        if found is None:
            request = PlanQueryRequest(sql, named_in(sql, known.catalogue), ID_PREFIX)
            ask = partial(self._planner.plan_query, request)
            planned: PlannedStatement | Refused = await self._admission.plan(caller, namespace, sql, ask)
            if isinstance(planned, Refused):
                return planned
            found = planned
        _remember(known.statements, sql, found)
        return found

    def owners(self, namespace: str, place: str | None) -> Mapping[GlobalId, Parent]:
        """The object of each relation; kept while nothing changes, because every lookup needs it."""
        return self._names(namespace, place).owners

    def _names(self, namespace: str, place: str | None) -> _Known:
        sources, dataflows = self._registry.sources(namespace), self._registry.dataflows(namespace)
        state = ([(s.key, s.pinned) for s in sources], [(d.key, d.instance, d.active) for d in dataflows])
        known = self._known.get((namespace, place))
        if known is None or known.state != state:
            objects = catalogue(sources, dataflows, instance=place)
            names = Catalogue((*objects.relations, *relations()))
            known = self._known[namespace, place] = _Known(
                state, names, RelationNames.of(names), owners(sources, dataflows)
            )
        self._known.move_to_end((namespace, place))
        if len(self._known) > MAX_NAMESPACES:
            self._known.popitem(last=False)
        return known


def _remember(statements: OrderedDict[str, PlannedStatement], sql: str, meaning: PlannedStatement) -> None:
    if len(sql) > MAX_CHARACTERS:
        return
    statements[sql] = meaning
    statements.move_to_end(sql)
    if len(statements) > MAX_STATEMENTS:
        statements.popitem(last=False)
