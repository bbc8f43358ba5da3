"""The relations of `tidemark_introspection`: their columns, and their rows at this moment.

    frontiers           every table and export: how far it is, and how far behind the clock
    replica_frontiers   every export on every replica
    dataflows           every installed dataflow: where it begins, whether it is scheduled and hydrated
    peeks               what was asked and is not answered yet
    errors              what replicas say is wrong
    statuses            all else that replicas say: hydration, sizes of arrangements, steps
    arrangements        what each dataflow keeps on each replica: how many, records, batches, bytes
    steps               what its steps took there, since it was rendered
    operators           what each of its operators keeps and took there, and how far it is while it hydrates
    imports             what each dataflow reads, how far that is, and how far the dataflow has read it
    wallclock_lag       seconds that each export spent so far behind the clock

Times are milliseconds since 1970; NULL where nothing is known; a finished frontier is NULL with `finished` true.

Rows go into a plan, and no replica takes one of any size: past MOST_BYTES a query is refused, unless its filter says of
which rows it speaks (`wanted`). Those that it leaves out are not made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from tidemark_operator.catalogue.dataflow_state import name_of
from tidemark_operator.controller.frontiers.collection import Collection, failures
from tidemark_operator.controller.reports.operator_costs import operator_costs
from tidemark_operator.errors import QueryRefused
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.reconcile_context import World
from tidemark_operator.handlers.revisions.import_frontiers import import_names
from tidemark_operator.introspection.frontiers import frontiers as all_frontiers
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.messages.planning import Relation
from tidemark_protocol.plan.dataflow import DataflowDescription, ShardMetadata
from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.plan.lir import Constant, ConstantRow
from tidemark_protocol.types import BIGINT, BOOLEAN, STRING, Column, ColumnType, SqlType

SCHEMA = "tidemark_introspection"
Value = str | int | bool | None
Row = tuple[Value, ...]
Wanted = Mapping[int, str]
"""Texts that columns have in the rows that are wanted, by their places."""
EVERY: Wanted = MappingProxyType({})
MOST_BYTES = 4 * 1024 * 1024
"""In a plan: some thousands of rows, which take the event loop a second. Several such relations fit one."""
_LITERAL_BYTES = 48
_BY_LETTER: dict[str, SqlType] = {"s": STRING, "n": BIGINT, "b": BOOLEAN}


def _columns(text: str) -> tuple[Column, ...]:
    """`name:s write_time:n hydrated:b`"""
    return tuple(Column(name, _BY_LETTER[of]) for name, _, of in (word.partition(":") for word in text.split()))


def _frontiers(world: World, namespace: str) -> Iterator[Row]:
    reply = all_frontiers(world, namespace, False)
    for c in reply.collections:
        read, write = (c.read if c.HasField("read") else None), (c.write if c.HasField("write") else None)
        finished = write == Frontier.empty().encode()
        lag = None if write is None or finished else max(reply.now - write, 0)
        yield c.name, c.kind, read, None if finished else write, finished, lag, c.hydrated


def _replica_frontiers(world: World, namespace: str) -> Iterator[Row]:
    now = now_ms()
    for running, name, collection in _collections(world, namespace):
        for replica, on in collection.computing:
            times = [None if f is None else f.time for f in (on.input, on.output, on.write)]
            lag = None if times[2] is None else max(now - times[2], 0)
            yield name, running.name, replica, *times, lag, on.hydrated, on.refused_reports


def _dataflows(world: World, namespace: str) -> Iterator[Row]:
    for running in world.fleet.of(namespace):
        for owner in running.owners():
            dataflow = running.dataflow(owner)
            collections = running.collections_of(owner)
            if dataflow is not None:
                hydrated = all(c.hydrated for c in collections)
                as_of, name = dataflow.description.as_of, name_of(owner) or owner
                yield name, running.name, as_of, dataflow.scheduled, hydrated, dataflow.dropped, len(collections)


def _peeks(world: World, namespace: str) -> Iterator[Row]:
    for running in world.fleet.of(namespace):
        for peek in running.pending_peeks():
            yield peek.uuid, running.name, str(peek.target.id), peek.timestamp


def _errors(world: World, namespace: str) -> Iterator[Row]:
    for _, name, collection in _collections(world, namespace):
        for replica, on in collection.computing:
            erroring = on.statuses.get("erroring", {})
            if (count := int(erroring.get("errors", "0"))) > 0:
                yield name, replica, erroring.get("code"), count, erroring.get("expression")
            for failure in failures(on):
                yield name, replica, "REPLICA", 1, failure


def _statuses(world: World, namespace: str) -> Iterator[Row]:
    for _, name, collection in _collections(world, namespace):
        for replica, on in collection.computing:
            for kind, fields in sorted(on.statuses.items()):
                for field, value in sorted(fields.items()):
                    yield name, replica, kind, field, value


def _numbers(kind: str, fields: tuple[str, ...]) -> Callable[[World, str], Iterator[Row]]:
    """Of a Status that consists of numbers, a row for each dataflow on each replica."""

    def read(world: World, namespace: str) -> Iterator[Row]:
        for _, name, collection in _collections(world, namespace):
            for replica, on in collection.computing:
                if said := on.statuses.get(kind):
                    yield name.partition(".")[0], replica, *(int(said.get(field, "0")) for field in fields)

    return read


def _operators(world: World, namespace: str) -> Iterator[Row]:
    """While it hydrates, how far each is, which is told of every export; from then on what each keeps and has cost."""
    told: set[tuple[str, str, str]] = set()
    for running, name, collection in _collections(world, namespace):
        dataflow = name.partition(".")[0]
        for replica, on in collection.computing:
            if (hydrating := on.hydrating) is not None:
                there = (running.name, collection.owner, replica)
                if there in told:
                    continue
                told.add(there)
                for place, (operator, percent) in enumerate(hydrating.operators, 1):
                    yield dataflow, replica, place, operator, None, None, None, None, None, percent, percent == 100
                continue
            for place, o in enumerate(operator_costs(on.statuses.get("operators", {})), 1):
                costs = (o.records, o.batches, o.bytes, o.elapsed_ms)
                yield dataflow, replica, place, o.name, o.kind or None, *costs, 100, True


def _imports(world: World, namespace: str) -> Iterator[Row]:
    names, now = import_names(world.registry, namespace), now_ms()
    for running in world.fleet.of(namespace):
        for owner in running.owners():
            if (dataflow := running.dataflow(owner)) is None:
                continue
            collections = running.collections_of(owner)
            read = _time(max((c.input for c in collections if c.input is not None), default=None))
            for id, kind, write in _read_by(world, namespace, running, dataflow.description):
                behind = None if write is None or write.time is None else max(now - write.time, 0)
                name, finished = names.get(id, str(id)), write is not None and write.is_empty
                yield name_of(owner) or owner, running.name, name, kind, _time(write), finished, behind, read


def _read_by(
    world: World, namespace: str, running: RunningInstance, description: DataflowDescription
) -> Iterator[tuple[GlobalId, str, Frontier | None]]:
    """What a dataflow imports, and how far that is."""
    for source in description.source_imports:
        known = world.fleet.book(namespace).frontiers(source.shard.shard_id)
        yield source.id, "table", known.upper if known else None
    for index in description.index_imports:
        collection = running.collection(index.id)
        yield index.id, "index", collection.write if collection else None


def _time(frontier: Frontier | None) -> int | None:
    return None if frontier is None else frontier.time


def _wallclock_lag(world: World, namespace: str) -> Iterator[Row]:
    names = {c.id: name for _, name, c in _collections(world, namespace)}
    for running in world.fleet.of(namespace):
        for id, histogram in running.lags.histograms():
            for bound, seconds in histogram.items():
                yield names.get(id, str(id)), running.name, bound, seconds


def _collections(world: World, namespace: str) -> Iterator[tuple[RunningInstance, str, Collection]]:
    """All exports that are installed, by the names that SQL has for them."""
    named = {}
    for state in world.registry.dataflows(namespace):
        for export in state.active.revision.exports if state.active else ():
            if state.active and (id := state.active.revision.export_id(export.name)):
                named[id] = f"{state.key.name}.{export.name}"
    for running in world.fleet.of(namespace):
        for owner in running.owners():
            for collection in running.collections_of(owner):
                yield running, named.get(collection.id, str(collection.id)), collection


_RELATIONS: dict[str, tuple[tuple[Column, ...], Callable[[World, str], Iterator[Row]]]] = {
    "frontiers": (
        _columns("name:s kind:s read_time:n write_time:n finished:b lag_ms:n hydrated:b"),
        _frontiers,
    ),
    "replica_frontiers": (
        _columns(
            "name:s instance:s replica:s input_time:n output_time:n write_time:n lag_ms:n hydrated:b refused_reports:n"
        ),
        _replica_frontiers,
    ),
    "dataflows": (
        _columns("name:s instance:s as_of:n scheduled:b hydrated:b dropped:b exports:n"),
        _dataflows,
    ),
    "peeks": (_columns("uuid:s instance:s target:s time:n"), _peeks),
    "errors": (_columns("name:s replica:s code:s errors:n detail:s"), _errors),
    "statuses": (_columns("name:s replica:s kind:s field:s value:s"), _statuses),
    "arrangements": (
        _columns("dataflow:s replica:s arrangements:n records:n batches:n bytes:n"),
        _numbers("arrangements", ("arrangements", "records", "batches", "bytes")),
    ),
    "steps": (
        _columns("dataflow:s replica:s steps:n elapsed_ms:n max_ms:n hydration_ms:n"),
        _numbers("steps", ("steps", "elapsed_ms", "max_ms", "hydration_ms")),
    ),
    "operators": (
        _columns(
            "dataflow:s replica:s place:n operator:s kind:s records:n batches:n bytes:n elapsed_ms:n "
            "percent:n hydrated:b"
        ),
        _operators,
    ),
    "imports": (
        _columns("dataflow:s instance:s name:s kind:s write_time:n finished:b lag_ms:n input_time:n"),
        _imports,
    ),
    "wallclock_lag": (_columns("name:s instance:s up_to_s:n seconds:n"), _wallclock_lag),
}


def relations() -> tuple[Relation, ...]:
    """For the catalogue. The shards are nowhere: rows are put into plans before those are sent."""
    found = []
    for name, (columns, _) in _RELATIONS.items():
        id = f"{SCHEMA}.{name}"
        found.append(Relation(SCHEMA, name, GlobalId(id), columns, ShardMetadata(ShardId(id), id, columns)))
    return tuple(found)


def is_introspection(id: GlobalId) -> bool:
    """Whether it is one of these: no table or export has an id with this in front."""
    return id.startswith(f"{SCHEMA}.")


def rows(world: World, namespace: str, id: GlobalId, wanted: Wanted = EVERY) -> Constant | None:
    """What is in the relation now, of the rows that are wanted; None for one that is none of these. Raises
    QueryRefused where that is more than a plan may hold."""
    if not is_introspection(id):
        return None
    columns, read = _RELATIONS[id.removeprefix(f"{SCHEMA}.")]
    made, size = [], 0
    for row in read(world, namespace):
        if any(row[at] != text for at, text in wanted.items()):
            continue
        size += sum(_LITERAL_BYTES + len(str(value)) for value in row)
        if size > MOST_BYTES:
            raise QueryRefused(
                f"{id} has more rows here than a query may read: say which, as in WHERE {columns[0].name} = '...'"
            )
        made.append(ConstantRow(tuple(_literal(v, c.type) for v, c in zip(row, columns, strict=True))))
    return Constant(tuple(made), _schema(columns))


def no_rows(id: GlobalId, wanted: Wanted = EVERY) -> Constant | None:
    """As `rows`, but empty: when a plan can be computed does not depend on them, and they may take a second."""
    return Constant((), _schema(_RELATIONS[id.removeprefix(f"{SCHEMA}.")][0])) if is_introspection(id) else None


def _schema(columns: tuple[Column, ...]) -> tuple[ColumnType, ...]:
    return tuple(ColumnType(c.type, c.nullable) for c in columns)


def _literal(value: Value, of: SqlType) -> Literal:
    if value is None:
        return Literal(None, of)
    return Literal(("false", "true")[value] if isinstance(value, bool) else str(value), of)
