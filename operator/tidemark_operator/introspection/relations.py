"""The relations of `tidemark_introspection`: their columns, and their rows at this moment.

    frontiers           every table and export: its frontiers, and its lag behind the clock
    replica_frontiers   the same for every export on every replica
    dataflows           every installed dataflow: its as_of, whether it is scheduled and hydrated
    peeks               peeks without an answer yet
    leases              what clients' leases hold, and how far behind the read policy
    errors              errors that replicas report
    statuses            every other status of replicas: hydration, sizes of arrangements, steps
    arrangements        per dataflow and replica: arrangements, records, batches, bytes
    steps               per dataflow and replica: steps and their durations since it was rendered
    step_histogram      per dataflow, replica and bucket: steps that took so long
    hydrations          the hydrations of each replica, under way or ended
    operators           per operator: records, bytes and time, and its progress while the dataflow hydrates
    operator_channels   which operator's rows reach which other one
    imports             per dataflow: its inputs, their write frontiers, and how far the dataflow has read
    tables              the tables of sources: rows, bytes, lag, errors
    files               the files of sources: their rows and errors, and what became of them
    retained_tables     tables that no object has, as replicas found them when the query was asked
    wallclock_lag       a histogram per export: seconds at each lag behind the clock

Times are milliseconds since 1970; NULL where nothing is known; a finished frontier is NULL with `finished` true.

Rows become part of a plan, whose size is bounded: a query is refused when its rows take more than MAX_BYTES. Rows that
its equality filter excludes are not produced and not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from tidemark_operator.catalogue.dataflow_state import name_of
from tidemark_operator.catalogue.source_tables import tables_of
from tidemark_operator.controller.frontiers.collection import Collection, failures
from tidemark_operator.controller.frontiers.lease_book import ClientLease
from tidemark_operator.controller.reports.operator_costs import operator_channels, operator_costs
from tidemark_operator.controller.reports.recomputation import FIELDS, KIND
from tidemark_operator.controller.reports.step_histogram import step_histogram
from tidemark_operator.errors import QueryRefused
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.handlers.revisions.import_frontiers import import_names
from tidemark_operator.introspection.frontiers import frontiers_of
from tidemark_operator.introspection.retained_tables import RetainedTable
from tidemark_operator.resources import relation_columns
from tidemark_operator.resources.relation_columns import COLUMNS
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.messages.planning import Relation
from tidemark_protocol.messages.responses import TableReport
from tidemark_protocol.plan.dataflow import DataflowDescription, ShardMetadata
from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.plan.ingestion import INTROSPECTION as SCHEMA
from tidemark_protocol.plan.lir import Constant, ConstantRow
from tidemark_protocol.types import Column, ColumnType, SqlType

RETAINED_TABLES = GlobalId(f"{SCHEMA}.{relation_columns.RETAINED_TABLES}")
Value = str | int | bool | None
Row = tuple[Value, ...]
ColumnFilter = Mapping[int, str]
"""The text that a column must have, by the column's position; rows with another text are not produced."""
NO_FILTER: ColumnFilter = MappingProxyType({})
MAX_BYTES = 4 * 1024 * 1024
"""The bytes of one relation's rows in a plan, at most: thousands of rows, a second of the event loop. Several relations
fit a plan."""
_LITERAL_BYTES = 48
Reader = Callable[[ReconcileContext, str, ColumnFilter], Iterator[Row]]
"""Reads the rows of a relation, in a namespace; may leave out rows that the filter excludes."""


def _frontiers(context: ReconcileContext, namespace: str) -> Iterator[Row]:
    now = now_ms()
    for c in frontiers_of(context, namespace):
        read, write = (c.read if c.HasField("read") else None), (c.write if c.HasField("write") else None)
        finished = write == Frontier.empty().encode()
        lag = None if write is None or finished else max(now - write, 0)
        yield c.name, c.kind, read, None if finished else write, finished, lag, c.hydrated


def _replica_frontiers(context: ReconcileContext, namespace: str, column_filter: ColumnFilter) -> Iterator[Row]:
    now = now_ms()
    for running, name, collection in _collections(context, namespace, column_filter):
        for replica, on in collection.computing:
            times = [None if f is None else f.time for f in (on.input, on.output, on.write)]
            lag = None if times[2] is None else max(now - times[2], 0)
            yield name, running.name, replica, *times, lag, on.hydrated, on.refused_reports


def _dataflows(context: ReconcileContext, namespace: str) -> Iterator[Row]:
    for running in context.fleet.of(namespace):
        for dataflow in running.dataflows():
            owner, collections = dataflow.owner, running.collections_of(dataflow.owner)
            hydrated = all(c.hydrated for c in collections)
            as_of, name = dataflow.description.as_of, name_of(owner) or owner
            yield name, running.name, as_of, dataflow.scheduled, hydrated, dataflow.dropped, len(collections)


def _peeks(context: ReconcileContext, namespace: str) -> Iterator[Row]:
    for running in context.fleet.of(namespace):
        for peek in running.pending_peeks():
            yield peek.uuid, running.name, str(peek.target.id), peek.timestamp


def _leases(context: ReconcileContext, namespace: str, column_filter: ColumnFilter) -> Iterator[Row]:
    """The id of a lease is a secret of its client, so its beginning is shown alone. The filter's texts for
    the first three columns are compared before a row is made."""
    if (book := context.fleet.leases(namespace)) is None:
        return
    names = import_names(context.registry, namespace)
    name, beginning, holder = map(column_filter.get, range(3))
    ids = None if name is None else frozenset((GlobalId(name), *(id for id, known in names.items() if known == name)))

    def is_shown(lease: ClientLease) -> bool:
        return holder in (None, lease.caller) and beginning in (None, lease.id[:8])

    now = now_ms()
    for held in book.relations(now, ids, is_shown):
        lease, until = held.lease, now + held.ends_in_ms
        yield names.get(held.id, str(held.id)), lease.id[:8], lease.caller, lease.as_of, held.behind_ms, until


def _files(context: ReconcileContext, namespace: str) -> Iterator[Row]:
    for source in context.registry.sources(namespace):
        for f in source.report.files if source.report else ():
            yield source.key.name, f.table, f.file, f.size, f.rows, f.errors, f.state, f.reason or None, f.time


def _retained(table: RetainedTable) -> Row:
    upper = None if table.error else table.upper
    known = (table.kind or None, table.owner or None, table.state, None if table.error else table.bytes)
    times = (_time(upper), upper is not None and upper.is_empty)
    return table.name, table.part, table.version, *known, *times, table.instance, table.location, table.error or None


def _tables(context: ReconcileContext, namespace: str) -> Iterator[Row]:
    now = now_ms()
    for source in context.registry.sources(namespace):
        for table in tables_of(source, context.fleet):
            ingester = source.ingester.replica if source.ingester else None
            report = table.report or TableReport(table.name)
            size = (report.rows, report.bytes) if table.report else (None, None)
            yield (
                source.key.name,
                table.name,
                source.instance,
                ingester,
                *size,
                _time(table.upper),
                table.upper is not None and table.upper.is_empty,
                table.lag_ms(now),
                report.behind,
                report.unit or None,
                report.snapshot_percent,
                report.malformed,
                report.stopped,
                report.error or None,
                report.errors,
                report.error_time,
            )


def _errors(context: ReconcileContext, namespace: str, column_filter: ColumnFilter) -> Iterator[Row]:
    for _, name, collection in _collections(context, namespace, column_filter):
        for replica, on in collection.computing:
            erroring = on.statuses.get("erroring", {})
            if (count := int(erroring.get("errors", "0"))) > 0:
                yield name, replica, erroring.get("code"), count, erroring.get("expression")
            for failure in failures(on):
                yield name, replica, "REPLICA", 1, failure


def _statuses(context: ReconcileContext, namespace: str, column_filter: ColumnFilter) -> Iterator[Row]:
    for _, name, collection in _collections(context, namespace, column_filter):
        for replica, on in collection.computing:
            for kind, fields in sorted(on.statuses.items()):
                for field, value in sorted(fields.items()):
                    yield name, replica, kind, field, value
            for kind, failed in sorted(on.failures.items()):
                stopped, attempts = "true" if failed.stopped else "", str(failed.attempts or "")
                told = {"message": failed.message, "reason": failed.reason, "attempts": attempts, "stopped": stopped}
                for field, value in told.items():
                    if value:
                        yield name, replica, f"failure {kind}", field, value


def _numbers(kind: str, fields: tuple[str, ...]) -> Reader:
    """Rows of a Status with numeric fields, one per dataflow and replica."""

    def read(context: ReconcileContext, namespace: str, column_filter: ColumnFilter) -> Iterator[Row]:
        for _, name, collection in _collections(context, namespace, column_filter):
            for replica, on in collection.computing:
                if status := on.statuses.get(kind):
                    yield name.partition(".")[0], replica, *(int(status.get(field, "0")) for field in fields)

    return read


def _step_histogram(context: ReconcileContext, namespace: str, column_filter: ColumnFilter) -> Iterator[Row]:
    for _, name, collection in _collections(context, namespace, column_filter):
        for replica, on in collection.computing:
            for bound, steps in step_histogram(on.statuses.get("steps", {})):
                yield name.partition(".")[0], replica, bound, steps


def _hydrations(context: ReconcileContext, namespace: str) -> Iterator[Row]:
    for running in context.fleet.of(namespace):
        for replica, each in running.hydrations():
            times = (each.as_of, each.began_ms, each.ended_ms)
            yield name_of(each.owner) or each.owner, running.name, replica, *times, each.outcome or None


def _operators(context: ReconcileContext, namespace: str, column_filter: ColumnFilter) -> Iterator[Row]:
    """The operators: their progress while a dataflow hydrates (once per dataflow), afterwards their sizes and costs."""
    listed: set[tuple[str, str, str]] = set()
    for running, name, collection in _collections(context, namespace, column_filter):
        dataflow = name.partition(".")[0]
        for replica, on in collection.computing:
            if (hydrating := on.hydrating) is not None:
                there = (running.name, collection.owner, replica)
                if there in listed:
                    continue
                listed.add(there)
                for place, (operator, percent) in enumerate(hydrating.operators, 1):
                    yield dataflow, replica, place, operator, None, None, None, None, None, percent, percent == 100
                continue
            for place, o in enumerate(operator_costs(on.statuses.get("operators", {})), 1):
                costs = (o.records, o.batches, o.bytes, o.elapsed_ms)
                yield dataflow, replica, place, o.name, o.kind or None, *costs, 100, True


def _operator_channels(context: ReconcileContext, namespace: str, column_filter: ColumnFilter) -> Iterator[Row]:
    for _, name, collection in _collections(context, namespace, column_filter):
        for replica, on in collection.computing:
            status = on.statuses.get("operators", {})
            operators = operator_costs(status)
            for begin, end in operator_channels(status):
                if max(begin, end) < len(operators):
                    first, second = (begin + 1, operators[begin].name), (end + 1, operators[end].name)
                    yield name.partition(".")[0], replica, *first, *second


def _imports(context: ReconcileContext, namespace: str) -> Iterator[Row]:
    names, now = import_names(context.registry, namespace), now_ms()
    for running in context.fleet.of(namespace):
        for dataflow in running.dataflows():
            owner, collections = dataflow.owner, running.collections_of(dataflow.owner)
            read = _time(max((c.input for c in collections if c.input is not None), default=None))
            for id, kind, write in _read_by(context, namespace, running, dataflow.description):
                behind = None if write is None or write.time is None else max(now - write.time, 0)
                name, finished = names.get(id, str(id)), write is not None and write.is_empty
                yield name_of(owner) or owner, running.name, name, kind, _time(write), finished, behind, read


def _read_by(
    context: ReconcileContext, namespace: str, running: RunningInstance, description: DataflowDescription
) -> Iterator[tuple[GlobalId, str, Frontier | None]]:
    """The imports of a dataflow: id, kind, write frontier."""
    for source in description.source_imports:
        known = context.fleet.book(namespace).frontiers(source.shard.shard_id)
        yield source.id, "table", known.upper if known else None
    for index in description.index_imports:
        collection = running.collection(index.id)
        yield index.id, "index", collection.write if collection else None


def _time(frontier: Frontier | None) -> int | None:
    return None if frontier is None else frontier.time


def _wallclock_lag(context: ReconcileContext, namespace: str) -> Iterator[Row]:
    names = {c.id: name for _, name, c in _collections(context, namespace)}
    for running in context.fleet.of(namespace):
        for id, histogram in running.lags.histograms():
            for bound, seconds in histogram.items():
                yield names.get(id, str(id)), running.name, bound, seconds


def _collections(
    context: ReconcileContext, namespace: str, column_filter: ColumnFilter = NO_FILTER
) -> Iterator[tuple[RunningInstance, str, Collection]]:
    """All installed exports with their instances and SQL names. Where the filter has a text for the first column, which
    is the name of an export or of its Dataflow: those of this name alone."""
    wanted = column_filter.get(0)
    active = [(d.key.name, d.active.revision) for d in context.registry.dataflows(namespace) if d.active]
    named = {revision.export_id(e.name): f"{name}.{e.name}" for name, revision in active for e in revision.exports}
    for running in context.fleet.of(namespace):
        for collection in running.collections():
            name = named.get(collection.id, str(collection.id))
            if wanted in (None, name, name.partition(".")[0]):
                yield running, name, collection


def _read_whole(read: Callable[[ReconcileContext, str], Iterator[Row]]) -> Reader:
    """A reader that makes all rows, whatever the filter: the rows of such a relation cost little."""
    return lambda context, namespace, _: read(context, namespace)


_READERS: dict[str, Reader] = {
    "frontiers": _read_whole(_frontiers),
    "replica_frontiers": _replica_frontiers,
    "dataflows": _read_whole(_dataflows),
    "peeks": _read_whole(_peeks),
    relation_columns.LEASES: _leases,
    "errors": _errors,
    "statuses": _statuses,
    "arrangements": _numbers("arrangements", ("arrangements", "records", "batches", "bytes")),
    "steps": _numbers("steps", ("steps", "elapsed_ms", "max_ms", "hydration_ms")),
    "recomputations": _numbers(KIND, FIELDS),
    "step_histogram": _step_histogram,
    "hydrations": _read_whole(_hydrations),
    "operators": _operators,
    "operator_channels": _operator_channels,
    "imports": _read_whole(_imports),
    "tables": _read_whole(_tables),
    "files": _read_whole(_files),
    "wallclock_lag": _read_whole(_wallclock_lag),
}
"""The readers, by the name of the relation; the rows of `retained_tables` come from replicas."""


def relations() -> tuple[Relation, ...]:
    """The relations for the catalogue. Their shards do not exist: rows replace the imports before a plan is sent."""
    found = []
    for name, columns in COLUMNS.items():
        id = f"{SCHEMA}.{name}"
        found.append(Relation(SCHEMA, name, GlobalId(id), columns, ShardMetadata(ShardId(id), id, columns)))
    return tuple(found)


def is_introspection(id: GlobalId) -> bool:
    """Whether the id is of an introspection relation: no table or export has this prefix."""
    return id.startswith(f"{SCHEMA}.")


def rows_of(
    context: ReconcileContext, namespace: str, name: str, column_filter: ColumnFilter = NO_FILTER
) -> Iterator[Row]:
    """The rows of a relation other than `retained_tables`, as the operator knows them now. Rows that the filter
    excludes may be among them."""
    return _READERS[name](context, namespace, column_filter)


def row_bytes(row: Row) -> int:
    """The bytes that a row counts towards MAX_BYTES."""
    return sum(_LITERAL_BYTES + len(str(value)) for value in row)


def rows(
    context: ReconcileContext,
    namespace: str,
    id: GlobalId,
    column_filter: ColumnFilter = NO_FILTER,
    stored: Sequence[RetainedTable] = (),
) -> Constant | None:
    """The relation's rows now, those that the filter admits; None for an id of another relation. `stored`: the rows of
    `retained_tables`.

    Raises:
        QueryRefused: the rows take more than MAX_BYTES.
    """
    if not is_introspection(id):
        return None
    columns = columns_of(id)
    read = read_rows(context, namespace, id, column_filter, stored)
    made = (ConstantRow(tuple(_literal(v, c.type) for v, c in zip(row, columns, strict=True))) for row in read)
    return Constant(tuple(made), _schema(columns))


def read_rows(
    context: ReconcileContext,
    namespace: str,
    id: GlobalId,
    column_filter: ColumnFilter = NO_FILTER,
    stored: Sequence[RetainedTable] = (),
) -> list[Row]:
    """The rows of `rows`, as Python values, for the id of an introspection relation. Raises QueryRefused."""
    name = id.removeprefix(f"{SCHEMA}.")
    columns, made, size = COLUMNS[name], list[Row](), 0
    found = map(_retained, stored) if id == RETAINED_TABLES else rows_of(context, namespace, name, column_filter)
    for row in found:
        if any(row[at] != text for at, text in column_filter.items()):
            continue
        size += row_bytes(row)
        if size > MAX_BYTES:
            raise QueryRefused(
                f"{id} has more rows than one query may read ({MAX_BYTES} bytes): filter, as in WHERE "
                f"{columns[0].name} = '...'"
            )
        made.append(row)
    return made


def columns_of(id: GlobalId) -> tuple[Column, ...]:
    """The columns of an introspection relation."""
    return COLUMNS[id.removeprefix(f"{SCHEMA}.")]


def empty_rows(id: GlobalId, column_filter: ColumnFilter = NO_FILTER) -> Constant | None:
    """The result of `rows` without rows: enough to decide when a plan can be computed, since rows may take a second."""
    return Constant((), _schema(columns_of(id))) if is_introspection(id) else None


def _schema(columns: tuple[Column, ...]) -> tuple[ColumnType, ...]:
    return tuple(ColumnType(c.type, c.nullable) for c in columns)


def _literal(value: Value, of: SqlType) -> Literal:
    if value is None:
        return Literal(None, of)
    return Literal(("false", "true")[value] if isinstance(value, bool) else str(value), of)
