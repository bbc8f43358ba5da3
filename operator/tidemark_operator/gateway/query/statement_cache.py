"""Plans of statements, kept for as long as the relations that they name do not change.

    statement ──► planned before?      the same plan
              ──► of a known shape?    the shape's plan, with the statement's literals     (plan_template.py)
              ──► a plain SELECT?      a peek                                              (plain_select.py)
              ──► the planner          its plan is kept, the least recently used one is dropped
                                                                                  (admission/planner_admission.py)

The key of a plan is all that it depends on: the statement, its dialect, and the relations of the catalogue whose names
occur in it, with their columns, keys, indexes and ids. An id is new with each revision, so no plan outlives what it
reads. Whether the relations are the same is looked at again only when a relation of the namespace has changed. The
planner's settings are the same for all statements. Plain SELECTs are Spark's: other dialects have other names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.catalogue.relations import catalogue, named_in, owners
from tidemark_operator.gateway.admission.planner_admission import PlannerAdmission, check_length
from tidemark_operator.gateway.query.plain_select import RelationNames, recognise
from tidemark_operator.gateway.query.plan_template import PlanTemplate, ValueDependent, learn
from tidemark_operator.gateway.query.statement_shape import MAX_CHARACTERS, SPARK, StatementShape
from tidemark_operator.introspection.relations import relations
from tidemark_operator.lru_dict import LruDict
from tidemark_operator.planning.client import PlannerClient
from tidemark_operator.planning.revision import Parent
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Catalogue, PlannedOneShot, PlannedPeek, PlanQueryRequest, Refused

MAX_NAMESPACES, MAX_STATEMENTS = 64, 512
ID_PREFIX = "query/"
PlannedStatement = PlannedPeek | PlannedOneShot
_Key = tuple[str, str, tuple[str, ...] | None]


@dataclass
class _Kept:
    """A plan and what it was made from: the statement's shape, with its values, and the relations that it names.

    `checked`: the state of the namespace at which these relations were last found to be the same. `template`: None
    before a second statement of the shape was planned, and for ever where the plan is `value_dependent`.
    """

    shape: StatementShape
    plan: PlannedStatement
    named: Catalogue
    checked: object
    template: PlanTemplate[PlannedStatement] | None = None
    value_dependent: bool = False


@dataclass
class _Known:
    """The relations of one namespace for one instance. `state`: what they were built from.

    `plans`: by the shape's dialect, text and values; without the values the one that its template is learnt from.
    """

    state: object
    catalogue: Catalogue
    names: RelationNames
    owners: Mapping[GlobalId, Parent]
    plans: LruDict[_Key, _Kept]

    def find(self, shape: StatementShape) -> PlannedStatement | None:
        """The plan of the statement, if it is kept and still holds."""
        if (same := self._valid((shape.dialect, shape.text, shape.values))) is not None:
            return same.plan
        if (alike := self._valid((shape.dialect, shape.text, None))) is not None and alike.template is not None:
            return alike.template.filled(shape.values)
        return None

    def keep(self, made: _Kept) -> None:
        """Keep a plan by its statement, and learn from it and an earlier one of its shape."""
        shape = made.shape
        if len(shape.text) > MAX_CHARACTERS:
            return
        self.plans[shape.dialect, shape.text, shape.values] = made
        if shape.values:
            before = self.plans.get((shape.dialect, shape.text, None))
            if before is not None and before.named == made.named:
                made = _learnt(before, made)
            self.plans[shape.dialect, shape.text, None] = made

    def _valid(self, key: _Key) -> _Kept | None:
        found = self.plans.get(key)
        if found is None:
            return None
        if found.checked is not self.state:
            if found.named != named_in(found.shape.text, self.catalogue):
                del self.plans[key]
                return None
            found.checked = self.state
        self.plans.move_to_end(key)
        return found


def _learnt(before: _Kept, made: _Kept) -> _Kept:
    """The entry to keep for the shape of two statements; a shape whose plan was found to depend on values has no
    template."""
    if before.value_dependent:
        return before
    try:
        return replace(made, template=learn(before.shape, before.plan, made.shape, made.plan))
    except ValueDependent:
        return replace(made, value_dependent=True)


class StatementCache:
    """One per gateway; bounded in namespaces, statements and their length (characters)."""

    def __init__(self, registry: Registry, planner: PlannerClient, admission: PlannerAdmission) -> None:
        self._registry, self._planner, self._admission = registry, planner, admission
        self._known: LruDict[tuple[str, str | None], _Known] = LruDict(MAX_NAMESPACES)

    async def planned(
        self, caller: str, namespace: str, sql: str, place: str | None, dialect: str = SPARK
    ) -> PlannedStatement | Refused:
        """The plan of a statement, or the planner's refusal. `place`: the instance whose indexes it may import;
        `dialect`: whose SQL it is.

        Raises:
            QueryRefused: the text is too long.
            TooMany: too many statements wait for the planner.
            PlannerUnavailable: the planner does not answer.
        """
        check_length(sql)
        known = self._names(namespace, place)
        shape = StatementShape.of(sql, dialect)
        if (found := known.find(shape)) is not None:
            return found
        if dialect == SPARK and (plain := recognise(sql, known.names)) is not None:
            return plain  # not kept: lookups differ in their literals, and would evict plans that took long
        return await self._admission.plan(caller, namespace, sql, partial(self._ask, known, sql, shape))

    async def _ask(self, known: _Known, sql: str, shape: StatementShape) -> PlannedStatement | Refused:
        """The planner's plan, unless one was kept while the statement waited for its turn."""
        if (found := known.find(shape)) is not None:
            return found
        named = named_in(shape.text, known.catalogue)
        planned = await self._planner.plan_query(PlanQueryRequest(sql, named, ID_PREFIX, shape.dialect))
        if isinstance(planned, Refused):
            return planned
        kept = _without_explanation(planned)
        known.keep(_Kept(shape, kept, named, known.state))
        return kept

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
            kept = known.plans if known is not None else LruDict(MAX_STATEMENTS)
            known = self._known[namespace, place] = _Known(
                state, names, RelationNames.of(names), owners(sources, dataflows), kept
            )
        self._known.move_to_end((namespace, place))
        return known


def _without_explanation(planned: PlannedStatement) -> PlannedStatement:
    """The plan without its printed form, which has literals in its text and which no query reads."""
    if isinstance(planned, PlannedOneShot):
        return replace(planned, planned=replace(planned.planned, explain=""))
    return planned
