"""Calls that write rows of a DataSource of kind `table`: passed on to its ingester, one piece at a time.

    right ──► rate ──► which replica ingests it ──► pieces, as the client sends them ──► the ingester's answer

Nothing is kept here. Where the ingester, its connection or this process is lost before the answer, the client gets
WriteUnknown, or loses the call: the same call with the same key finds out what became of it. A
call without a key has no such way.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace

from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.catalogue.relations import named_alone
from tidemark_operator.catalogue.source_obstacle import obstacle
from tidemark_operator.errors import (
    QueryNotReady,
    QueryRefused,
    WriteRefused,
    WriteStopped,
    WriteUnknown,
)
from tidemark_operator.fleet.clients.row_calls import send_rows
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.gateway.admission.limits import GatewayLimits
from tidemark_operator.gateway.auth.access import Access
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.kube.cache import Key, is_deleted
from tidemark_operator.kube.client import DATA_SOURCES
from tidemark_protocol.ids import ReplicaId, ShardId
from tidemark_protocol.pb import compute_pb2, gateway_pb2
from tidemark_protocol.plan.ingestion import IngestionDescription, WrittenSource, WrittenTable
from tidemark_protocol.plan.successors import newest

UPSERT = "upsert"
VISIBLE_SECONDS = 5.0
"""The answer waits until the gateway knows that all tables have the rows, so that a query at the time finds them."""
TABLES_MAX, TABLES_BYTES_MAX, SECTIONS_MAX = 16, 4 << 20, 10_000
"""The tables of a call, the bytes of the bodies of several, and its sections: at most what the ingester takes."""

LOST_WITHOUT_KEY = (
    "the answer was lost, and the call had no key (Idempotency-Key over HTTP): the rows may be in the table, once or "
    "not at all. Look before you repeat the call, and give calls a key"
)


@dataclass(frozen=True)
class WriteTarget:
    """The place and kind of one call. `table` empty: the one that the name of the source alone means; `key` empty: the
    call cannot be repeated. `others`: further tables of the source that it writes, whose bodies follow, with the same
    format and key; `size`: of the body of each of its tables, in bytes, where there are others."""

    namespace: str
    source: str
    table: str
    operation: str
    format: str
    key: str
    table_id: str = ""
    """The id of the table that the rows are made for; empty: any of the name."""
    must_find: int = 0
    """The number of rows that its deletes and updates must find; 0: any number."""
    sections: Sequence[gateway_pb2.WriteSection] = ()
    """The sections of the rows, instead of one operation."""
    size: int = 0
    others: tuple[WriteTarget, ...] = ()

    @property
    def operations(self) -> tuple[str, ...]:
        """The operations of this table. Raises QueryRefused."""
        if self.sections and self.operation:
            raise QueryRefused("a call has one operation, or sections with operations of their own")
        return tuple(dict.fromkeys(each.operation for each in self.sections)) or (self.operation,)


def target_of(asked: gateway_pb2.InsertHeader) -> WriteTarget:
    """Raises QueryRefused; WriteRefused where the call has too many tables or sections, or names a table twice."""
    _require_bounded(asked)
    place, how = (asked.namespace, asked.source), (asked.format, asked.key)

    def target(each: gateway_pb2.InsertHeader | gateway_pb2.WriteTable, size: int = 0) -> WriteTarget:
        made_for = each.table_id, each.must_find
        return WriteTarget(*place, each.table, each.operation, *how, *made_for, each.sections, size)

    if not asked.tables:
        return target(asked)
    if asked.table or asked.table_id or asked.operation or asked.sections or asked.must_find:
        raise QueryRefused("a call is of one table, or says of each of its tables what is done with it")
    if len(asked.tables) == 1 or not all(each.table for each in asked.tables):
        raise QueryRefused("a call with a list of tables has several, each with its name")
    first, *others = (target(each, each.size) for each in asked.tables)
    return replace(first, others=tuple(others))


def _require_bounded(asked: gateway_pb2.InsertHeader) -> None:
    """Raises WriteRefused, before anything is done for each table, as the event loop does it."""
    tables = asked.tables
    if len(tables) > TABLES_MAX:
        raise WriteRefused(f"TOO_LARGE: a call has at most {TABLES_MAX} tables; divide it")
    if len(asked.sections) + sum(len(each.sections) for each in tables) > SECTIONS_MAX:
        raise WriteRefused(f"TOO_LARGE: a call has at most {SECTIONS_MAX} sections; divide it")
    if len({each.table for each in tables}) < len(tables) or any(each.size <= 0 for each in tables):
        raise WriteRefused("BAD_REQUEST: a call of several tables names each once, with the size of its body")
    if sum(each.size for each in tables) > TABLES_BYTES_MAX:
        raise WriteRefused(f"TOO_LARGE: a call of several tables has at most {TABLES_BYTES_MAX} bytes; divide it")


class Inserts:
    """The calls of one gateway that write rows."""

    def __init__(self, context: ReconcileContext, limits: GatewayLimits) -> None:
        self._context, self._limits = context, limits

    async def describe(
        self, access: Access, namespace: str, source: str, table: str, operation: str
    ) -> tuple[WrittenTable, str]:
        """The table and its id, for a caller who may write its rows so. Raises as `write`, before there is a body."""
        await access.check_write(namespace, source, operation)
        _, pinned, name = self._resolve(namespace, source, table)
        assert isinstance(pinned.source, WrittenSource)
        stored = _stored(pinned, name)
        found = next(each for each in pinned.source.tables if each.name == stored)
        return replace(found, name=name), _id_of(pinned, name)

    async def write(self, access: Access, target: WriteTarget, pieces: AsyncIterator[bytes]) -> gateway_pb2.InsertReply:
        """Write the body; return once it is durable and visible. `pieces` ends where the body is complete, and raises
        where it is not.

        Raises:
            Forbidden, ReviewUnavailable: as `Access.check`.
            WriteRefused: there is no such table, or the rows cannot be written. QueryRefused: the body broke off.
            QueryNotReady, TooMany: nothing was written, and the call may be repeated.
            WriteUnknown: the replica was lost. The text says whether to repeat the call: not without a key.
        """
        targets = (target, *target.others)
        for operation in dict.fromkeys(operation for each in targets for operation in each.operations):
            await access.check_write(target.namespace, target.source, operation)
        self._limits.write_rate.take(access.caller)
        tables = list[str]()
        for each in targets:
            state, pinned, table = self._resolve(target.namespace, target.source, each.table)
            _require_made_for(each, pinned, table)
            tables.append(table)
        async with self._limits.writes.hold(access.caller):
            running = self._ingesting(state)
            header = _header(target, pinned, tables)
            try:
                assert state.ingester is not None
                answer = await send_rows(running, ReplicaId(state.ingester.replica), header, pieces)
            except WriteUnknown:
                if target.key:
                    raise
                raise WriteUnknown(LOST_WITHOUT_KEY) from None
        if answer.refusal:
            raise WriteRefused(answer.refusal)
        stored = [_stored(pinned, table) for table in tables]
        shards = [each.shard.shard_id for each in pinned.tables if each.table.name in stored]
        await _until_visible(running, shards, answer.time)
        names, time = ", ".join(tables), answer.time
        return gateway_pb2.InsertReply(table=names, time=time, rows=answer.rows, repeated=answer.repeated)

    def _resolve(self, namespace: str, source: str, table: str) -> tuple[SourceState, IngestionDescription, str]:
        """The DataSource, its stored description, and the table's name."""
        where = f"DataSource {source:.80} in namespace {namespace:.80}"
        key = Key(DATA_SOURCES, namespace, source)
        state = self._context.registry.source(key)
        found = self._context.cache.get(key)
        if state is None and (found is None or is_deleted(found, found["metadata"]["uid"])):
            raise WriteRefused(f"NO_SUCH_TABLE: there is no {where}")
        if state is not None and is_deleted(found, state.uid):
            raise WriteRefused(f"NO_SUCH_TABLE: {where} is being deleted")
        if state is None or state.pinned is None:
            self._require_possible(key)
            raise QueryNotReady(f"{where} is starting: repeat the call")
        if not isinstance(state.pinned.source, WrittenSource):
            raise WriteRefused(f"NO_SUCH_TABLE: {where} is not of kind table: its rows come from elsewhere")
        names = list(newest(each.name for each in state.pinned.source.tables))
        if table and table not in names:
            raise WriteRefused(f"NO_SUCH_TABLE: {where} has no table {table:.80}: {', '.join(names)}")
        found_name = table or named_alone(source, names)
        if found_name is None:
            raise WriteRefused(f"NO_SUCH_TABLE: {where} has several tables; name one of them: {', '.join(names)}")
        return state, state.pinned, found_name

    def _require_possible(self, key: Key) -> None:
        """Raises WriteStopped: the source takes no rows until somebody changes something."""
        stopped = obstacle(self._context.registry, self._context.cache, key)
        if stopped is not None:
            raise WriteStopped(f"DataSource {key.name} takes no rows: {stopped.reason}: {stopped.message}")

    def _ingesting(self, state: SourceState) -> RunningInstance:
        running = self._context.running(state.key.namespace, state.instance)
        pinned, ingester = state.pinned, state.ingester
        if running is None or pinned is None or not running.is_ingesting(pinned.id):
            self._require_possible(state.key)
            raise QueryNotReady(
                f"DataSource {state.key.name} is not ingested now: it or its ComputeInstance is suspended, or no "
                "replica is online. Its conditions say which; then repeat the call"
            )
        if ingester is None or ReplicaId(ingester.replica) not in running.online:
            raise QueryNotReady(
                f"the replica that ingests DataSource {state.key.name} is not connected: repeat the call"
            )
        return running


def _header(target: WriteTarget, pinned: IngestionDescription, tables: Sequence[str]) -> compute_pb2.WriteRowsHeader:
    """The header of the call, for the replica. `tables`: the names of its tables."""
    header = compute_pb2.WriteRowsHeader(ingestion=pinned.id, format=target.format, key=target.key or uuid.uuid4().hex)
    if not target.others:
        header.table, header.operation, header.must_find = tables[0], target.operation, target.must_find
        header.sections.extend(_sections(target))
        return header
    for table, each in zip(tables, (target, *target.others), strict=True):
        header.tables.add(
            table=table, operation=each.operation, must_find=each.must_find, size=each.size, sections=_sections(each)
        )
    return header


def _sections(target: WriteTarget) -> list[compute_pb2.WriteRowsSection]:
    return [
        compute_pb2.WriteRowsSection(operation=each.operation, rows=each.rows, changed=each.changed)
        for each in target.sections
    ]


def _require_made_for(target: WriteTarget, pinned: IngestionDescription, table: str) -> None:
    """Raises WriteRefused where the rows were made for another table of the name."""
    if not _is_made_for(target.table_id, _id_of(pinned, table), target.operations):
        raise WriteRefused(
            f"TABLE_CHANGED: {target.source}.{table} was made anew, its key changed, or it got columns that "
            "upserts would make NULL, since the rows were made for it; make them anew"
        )


def _stored(pinned: IngestionDescription, name: str) -> str:
    """The stored name of the table that has this name in the spec: of its last one."""
    return newest(each.table.name for each in pinned.tables)[name]


def _id_of(pinned: IngestionDescription, name: str) -> str:
    """The id of the table with this name: by its DataSource, its shard, its columns and its key; then, after a plus,
    how many columns were added to it, if any were."""
    assert isinstance(pinned.source, WrittenSource)
    stored = _stored(pinned, name)
    table = next(each for each in pinned.source.tables if each.name == stored)
    shard = next(each.shard.shard_id for each in pinned.tables if each.table.name == stored)
    first = re.sub(rf"/{re.escape(stored)}(/v\d+)$", rf"/{name}\1", shard)
    columns = [(column.name, str(column.type)) for column in table.columns if column.name not in table.added]
    found = hashlib.sha256(repr((str(pinned.id), first, columns, table.primary_key)).encode()).hexdigest()[:32]
    return f"{found}+{len(table.added)}" if table.added else found


def _is_made_for(given: str, now: str, operations: Iterable[str]) -> bool:
    """Whether rows that were made for the table with the id `given` (empty: any) can be written to the one of now. Rows
    may lack columns that were added since, so that a call whose answer was lost can be repeated. An upsert may not: it
    would take away what others have written there."""
    return given in ("", now) or (given.partition("+")[0] == now.partition("+")[0] and UPSERT not in operations)


async def _until_visible(running: RunningInstance, shards: Iterable[ShardId], time: int) -> None:
    """Wait until the controller knows that the tables are complete at the time, all together VISIBLE_SECONDS."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(VISIBLE_SECONDS):
            for shard in shards:
                await running.shards.wait_beyond(shard, time)
