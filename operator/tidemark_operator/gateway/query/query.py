"""A statement to an answer: the planner says how to read it, the frontiers say at which times it can be read.

    the statement reads                          the answer
    rows of one table or export, as stored       a peek
    a selection of tidemark_introspection        the operator's own rows; no replica
    anything else                                a dataflow of its own on an instance, and a peek of that (one_shot.py)

The operator's knowledge of frontiers is a moment old: a new index may begin after the last tick that the operator has
heard of. A query whose inputs have no common time therefore waits for one, and a query whose replicas are all away
waits for one of them (admission/wait_policy.py).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.errors import QueryRefused
from tidemark_operator.fleet.clients.pending_queries import Answer
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.gateway.admission.wait_policy import WaitSlot, require_online, when_possible
from tidemark_operator.gateway.auth.access import Access
from tidemark_operator.gateway.auth.rights import check_rights, raise_refusal
from tidemark_operator.gateway.query import one_shot
from tidemark_operator.gateway.query.operator_query import OperatorQuery, operator_query
from tidemark_operator.gateway.query.read_time import TimeRequest, choose_time
from tidemark_operator.gateway.query.readable_relations import ReadableRelation, find_relation
from tidemark_operator.gateway.query.row_wise import check_row_wise
from tidemark_operator.gateway.query.statement_cache import PlannedStatement, StatementCache
from tidemark_operator.gateway.query.statement_shape import SPARK
from tidemark_operator.gateway.query.strict_read import STRICT_SECONDS, latest_ingested
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.introspection.inline_rows import RowSource, inline_rows
from tidemark_operator.introspection.relations import RETAINED_TABLES, empty_rows, is_introspection, rows
from tidemark_operator.introspection.retained_tables import RetainedTables
from tidemark_operator.kube.client import INSTANCES
from tidemark_protocol import tracing
from tidemark_protocol.ids import GlobalId, ReplicaId, Time
from tidemark_protocol.messages.commands import Peek
from tidemark_protocol.messages.planning import PlannedOneShot, PlannedPeek, Refused
from tidemark_protocol.types import Column

_QUERY = "the query cannot be computed now"
_OPERATORS = (
    f"{_QUERY} (the operator itself answers selections of one relation of tidemark_introspection: comparisons, AND, "
    "OR, NOT, IN, LIKE, IS NULL, ORDER BY and LIMIT)"
)


@dataclass(frozen=True)
class GatewayQuery:
    """A query that can be sent. `reads`: the relation's name; empty where a `dataflow` of its own has the answer.
    `target`: the only replica that may answer; None: any. `relations`: the ids of what the statement reads."""

    peek: Peek
    instance: RunningInstance
    reads: str = ""
    dataflow: Dataflow | None = None
    target: ReplicaId | None = None
    relations: tuple[GlobalId, ...] = ()

    @property
    def as_of(self) -> Time:
        return self.peek.timestamp

    @property
    def answer_columns(self) -> tuple[Column, ...]:
        """The columns of the answer."""
        return self.peek.columns[: self.peek.finishing.shown]

    async def answer(self) -> Answer:
        """Send the query and await its answer. Call it without an await since the time was chosen: until then no read
        hold protects that time. `release` must follow."""
        with tracing.span("peek", kind=tracing.CLIENT, instance=self.instance.name, relation=self.reads):
            context = tracing.current()
            peek = replace(self.peek, trace_context=context) if context else self.peek
            if self.dataflow is None:
                return await self.instance.answers.peek(peek, self.target)
            return await self.instance.answers.query(self.dataflow, peek, self.target)

    def release(self) -> None:
        """Forget the answer: it has been read, or its client is gone."""
        self.instance.answers.let_go(self.peek.uuid)


@dataclass(frozen=True)
class QueryRequest:
    """A client's request.

    `as_of`: the time to read at (ms since 1970); None: the freshest. `instance`: where a query with operators runs;
    empty: the namespace's only one. `strict`: the answer contains everything ingested when the query was asked.
    `replica`: the only one that may answer; empty: any. `skip_errors`: the rows that are right, and how many are not.
    `dialect`: whose SQL it is. `trace_context`: the client's span (tracing.py); empty: it has none. `lease`: the
    client's lease, which holds what the query reads; empty: none does.
    """

    namespace: str
    sql: str
    as_of: int | None = None
    instance: str = ""
    strict: bool = False
    replica: str = ""
    skip_errors: bool = False
    dialect: str = SPARK
    trace_context: str = ""
    lease: str = ""


@dataclass(frozen=True)
class PreparedQuery:
    """A query that can be answered. `now`: the query as of the time that is the freshest now; raises QueryRefused."""

    now: Callable[[], GatewayQuery | OperatorQuery]
    one_shot: bool


async def prepare(
    context: ReconcileContext,
    statements: StatementCache,
    tables: RetainedTables,
    access: Access,
    request: QueryRequest,
    wait_slot: WaitSlot = nullcontext,
) -> PreparedQuery:
    """Plan the query, and wait until it can be answered; a peek's sender waits for that. `wait_slot`: held while no
    replica answers.

    Raises:
        QueryRefused: it cannot be answered as asked; its subclasses say why.
        Forbidden: the caller lacks a right.
        PlannerUnavailable, ReviewUnavailable: the planner or the API server does not answer.
    """
    if request.strict and request.as_of is not None:
        raise QueryRefused("--strict reads at the freshest time, --as-of at a given one: choose one")
    namespace, place = request.namespace, request.instance or only_instance(context, request.namespace)
    planned = await _planned(statements, access, request, place)
    if request.skip_errors:
        check_row_wise(context.registry, namespace, planned, statements.owners(namespace, place))
    least = await latest_ingested(context, namespace, _reads(planned), wait_slot) if request.strict else None
    name = one_shot.new_name()
    when = TimeRequest(request.as_of, least)
    seconds = None if least is None else STRICT_SECONDS
    has_rows = any(map(is_introspection, _reads(planned)))
    stored = await tables.complete(namespace) if RETAINED_TABLES in _reads(planned) else ()

    own = operator_query(context, namespace, planned, stored, request.as_of)
    if own is not None and not request.replica:
        return PreparedQuery(own, False)

    def looked_up(plan: PlannedPeek) -> GatewayQuery:
        owner = statements.owners(namespace, place).get(plan.relation)
        readable = find_relation(context, namespace, plan.relation, owner)
        peek = build_peek(plan, readable, choose_time([readable], when), request.skip_errors)
        target = readable.instance.process_of(request.replica)
        return GatewayQuery(peek, readable.instance, readable.name, target=target, relations=_reads(plan))

    def make_query(of_relation: RowSource) -> GatewayQuery:
        """The query over these rows of tidemark_introspection."""
        if not has_rows and isinstance(planned, PlannedPeek):
            return looked_up(planned)
        running = require_instance(context, namespace, place, _OPERATORS if has_rows else _QUERY)
        plan = inline_rows(planned, of_relation)
        assert isinstance(plan, PlannedOneShot)
        dataflow, peek = one_shot.prepare(context.registry, running, name, plan, when)
        if has_rows:
            one_shot.check_plan_size(dataflow.description)
        relations = tuple(id for id in _reads(planned) if not is_introspection(id))
        target = running.process_of(request.replica)
        return GatewayQuery(peek, running, dataflow=dataflow, target=target, relations=relations)

    # repeated while the query waits: rows of tidemark_introspection are made once, at the end
    possible = partial(make_query, empty_rows)

    def now() -> GatewayQuery:
        if has_rows:
            possible()
        return make_query(partial(rows, context, namespace, stored=stored))

    if least is None and not has_rows and isinstance(planned, PlannedPeek):
        return PreparedQuery(now, False)  # a try is as cheap as a question: its sender waits
    await when_possible(possible, seconds, wait_slot)
    return PreparedQuery(now, has_rows or isinstance(planned, PlannedOneShot))


async def describe(
    context: ReconcileContext, statements: StatementCache, access: Access, request: QueryRequest
) -> tuple[Column, ...]:
    """The columns of the answer. Nothing is read. Raises as `prepare`."""
    place = request.instance or only_instance(context, request.namespace)
    planned = await _planned(statements, access, request, place)
    return planned.columns[: planned.finishing.shown]


async def _planned(
    statements: StatementCache, access: Access, request: QueryRequest, place: str | None
) -> PlannedStatement:
    """The plan, which the caller may run. Raises as `prepare`."""
    namespace = request.namespace
    planned = await statements.planned(access.caller, namespace, request.sql, place, request.dialect)
    if isinstance(planned, Refused):
        await raise_refusal(access, namespace, planned)
    await check_rights(access, namespace, _reads(planned), statements.owners(namespace, place))
    return planned


def _reads(planned: PlannedPeek | PlannedOneShot) -> tuple[GlobalId, ...]:
    return (planned.relation,) if isinstance(planned, PlannedPeek) else planned.planned.references


def only_instance(context: ReconcileContext, namespace: str) -> str | None:
    """The only ComputeInstance of a namespace; None where there are none, or several."""
    names = [key.name for key, _ in context.cache.all(INSTANCES, namespace)]
    return names[0] if len(names) == 1 else None


def require_instance(
    context: ReconcileContext, namespace: str, instance: str | None, operation: str = _QUERY
) -> RunningInstance:
    """The instance on which a query with operators runs. `operation`: what cannot be done without a replica.

    Raises:
        QueryRefused: there is no such instance, or the query must name one of several.
        NoReplicaAnswers: its replicas do not answer now.
    """
    if instance is None:
        raise QueryRefused(
            f"the query needs operators, and namespace {namespace} does not have exactly one ComputeInstance: name the "
            "one to run it on (--instance)"
        )
    running = context.running(namespace, instance)
    if running is None:
        raise QueryRefused(f"there is no ComputeInstance {instance} in namespace {namespace}, or it is not running")
    require_online(running, operation)
    return running


def build_peek(planned: PlannedPeek, readable: ReadableRelation, timestamp: Time, skip_errors: bool = False) -> Peek:
    return Peek(
        uuid=str(uuid.uuid4()),
        target=readable.target,
        timestamp=timestamp,
        mfp=planned.mfp,
        finishing=planned.finishing,
        columns=planned.columns,
        literals=planned.literals,
        skip_errors=skip_errors,
    )
