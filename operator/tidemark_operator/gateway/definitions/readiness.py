"""The end of `wait`, by the conditions of the object in the operator's cache.

written, of generation n ──► Progressing of n is False: UpToDate or Finished, and Ready is True
                             ──► after an edit: a later time is complete than was then                ──► it serves
                         ──► Progressing of n is False for another reason: waiting changes nothing   ──► refused
a DataSource             ──► Ready of n is True                                                      ──► it ingests
                         ──► an obstacle: what the operator failed at and does not wait for, or a reason of Ready
                             that somebody has to mend                                               ──► refused
columns of its table     ──► the last table of the name has them, and where it is asked for also its rows
                         ──► an obstacle, or why the operator does not edit the tables                ──► it is told
deleted, of this uid     ──► no object of this uid                                                   ──► gone
a table, taken out       ──► the gateway takes no rows for it                                        ──► refused
                         ──► it still does after KNOWN_SECONDS                                       ──► it is told
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.catalogue.source_obstacle import conditions_of, obstacle
from tidemark_operator.errors import DefinitionRefused
from tidemark_operator.gateway.admission.limits import GatewayLimits
from tidemark_operator.gateway.auth.rights import SQLSTATES
from tidemark_operator.gateway.definitions.refusals import being_deleted, dropped
from tidemark_operator.gateway.definitions.table_definition import table_names
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.kube.cache import Key, is_deleted
from tidemark_operator.kube.client import DATA_SOURCES, Body
from tidemark_operator.planning.planner_fault import PLANNERS_FAULT
from tidemark_operator.resources.conditions.data_source import IngestionFailure
from tidemark_operator.resources.conditions.diagnostics import reason
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.plan.ingestion import IngestedTable

POLL_SECONDS = 0.1
UNSEEN_SECONDS = 10.0
"""The time that an object may be missing in the cache, whose watch may be late, before the API server is asked for
it."""
DELETION_SECONDS = 30.0
"""The time that CREATE waits for an object of its name that is being deleted."""
KNOWN_SECONDS = 30.0
"""The time that CREATE TABLE waits until SQL knows the table: its replicas may be away."""
_LASTING_EDITS = ("ColumnsNotAdded", "TableNameUsed", "TooManyTables", "PlanTooLarge", "SourceUnreadable")
"""The reason why tables are not edited, until somebody changes something."""
_SERVES = ("UpToDate", "Finished")
_SQLSTATES = {
    **{reason(code): sqlstate for code, sqlstate in SQLSTATES.items() if code not in PLANNERS_FAULT},  # tried again
    "PlanTooLarge": "54000",
    "WaitingForInputs": "42P01",
    "Cycle": "42P17",
}
"""The SQLSTATEs of the reasons of conditions; all others: 55000."""


async def until_serving(context: ReconcileContext, key: Key, written: Body, edited: bool = True) -> None:
    """Wait until this generation of the Dataflow serves, or the DataSource ingests. `edited`: the Dataflow may serve an
    earlier generation. Raises DefinitionRefused: the object never will, by itself.

    An edit that keeps the columns keeps the table, whose contents at times that are complete stay those of before.
    """
    uid, generation = written["metadata"]["uid"], written["metadata"]["generation"]
    unseen, first = time.monotonic() + UNSEEN_SECONDS, None
    while True:
        found = context.cache.get(key)
        if found is not None and found["metadata"]["uid"] != uid:
            found = None  # the one before, as the watch is late
        if found is None and time.monotonic() > unseen:
            found = await context.kube.get(key.resource, key.namespace, key.name)
            if found is None or found["metadata"]["uid"] != uid:
                raise _deleted(key)
            unseen = time.monotonic() + UNSEEN_SECONDS
        if found is not None:
            if "deletionTimestamp" in found["metadata"]:
                raise _deleted(key)
            if _serves(context, key, found, generation):
                complete = found["status"].get("writeFrontier") or {}
                time_ = complete.get("time", 0)
                if not edited or generation == 1 or complete.get("finished") or (first is not None and time_ > first):
                    return
                first = time_ if first is None else first
        await asyncio.sleep(POLL_SECONDS)


async def until_known(context: ReconcileContext, key: Key, uid: str) -> str:
    """Wait until statements may name the tables of the DataSource, for KNOWN_SECONDS at most, or waiting changes
    nothing. Returns why they may not, empty where they may."""
    end = time.monotonic() + KNOWN_SECONDS
    while True:
        known, found = context.registry.source(key), context.cache.get(key)
        if known is not None and known.uid == uid and known.pinned is not None:
            return ""
        if found is not None and found["metadata"]["uid"] != uid:
            found = None  # the one before, as the watch is late
        stopped = None if found is None else obstacle(context.registry, context.cache, key)
        if stopped is not None or time.monotonic() >= end:
            return _failure_message(key, stopped or _waits_for(found))
        await asyncio.sleep(POLL_SECONDS)


async def until_columns(
    context: ReconcileContext, key: Key, written: Body, table: str, columns: Sequence[str], waits: bool
) -> str:
    """Wait until statements may name these columns of a written table, or the table without any, for KNOWN_SECONDS at
    most; or, where `waits`, until the table with them has its rows. Returns why they may not, empty where they may.
    Raises DefinitionRefused: the DataSource was deleted, or, where `waits`, waiting changes nothing."""
    end, uid, wanted = time.monotonic() + KNOWN_SECONDS, written["metadata"]["uid"], {c.lower() for c in columns}
    while True:
        state = context.registry.source(key)
        state = None if state is None or state.uid != uid else state
        place = None if state is None else _last_table(state, table)
        is_known = place is not None and wanted <= {column.name.lower() for column in place.table.columns}
        if place is not None and is_known:
            known = context.fleet.book(key.namespace).frontiers(place.shard.shard_id) if waits else None
            if not waits or (known is not None and known.upper > Frontier.minimum()):
                return ""
        found = context.cache.get(key) or await context.kube.get(key.resource, key.namespace, key.name)
        if found is None or found["metadata"]["uid"] != uid or "deletionTimestamp" in found["metadata"]:
            raise _deleted(key)
        if found["metadata"]["generation"] >= written["metadata"]["generation"] and table not in table_names(found):
            raise dropped(key, table)
        stopped = obstacle(context.registry, context.cache, key)
        if stopped is None and not is_known:  # the edit may be stopped by another table
            stopped = _edit_obstacle(state, written)
        if waits and stopped is not None:
            raise DefinitionRefused("55000", _not_added(key, table, columns, stopped))
        if not waits and (stopped is not None or time.monotonic() >= end):
            return _not_added(key, table, columns, stopped or _waits_for(found))
        await asyncio.sleep(POLL_SECONDS)


def _last_table(state: SourceState, table: str) -> IngestedTable | None:
    """The table that SQL reads by this name."""
    return next((each for name, each in state.tables() if name == table), None)


def _edit_obstacle(state: SourceState | None, written: Body) -> IngestionFailure | None:
    """The reason why the operator, which has seen the edit, does not make the tables those of the spec."""
    if state is None or state.edit is None or (state.reconciled or 0) < written["metadata"]["generation"]:
        return None
    return state.edit if state.edit.reason in _LASTING_EDITS else None


def _not_added(key: Key, table: str, columns: Sequence[str], failure: IngestionFailure) -> str:
    lacks = "its table has not the columns yet" if columns else f"table {table} takes no rows yet"
    return f"DataSource {key.name} is stored, and {lacks}: {failure.reason}: {failure.message}"


def _waits_for(found: Body | None) -> IngestionFailure:
    """The failure in the conditions of a DataSource that may still begin."""
    ready = {} if found is None else conditions_of(found, found["metadata"]["generation"]).get("Ready", {})
    return IngestionFailure(ready.get("reason", "Starting"), ready.get("message", "nothing is known of it yet"))


def _failure_message(key: Key, failure: IngestionFailure) -> str:
    """The message of a DataSource that is stored and does not take rows."""
    return f"DataSource {key.name} is stored, and takes no rows yet: {failure.reason}: {failure.message}"


async def until_refused(context: ReconcileContext, key: Key, uid: str, table: str = "") -> str:
    """Wait until the gateway takes no rows any more for a deleted DataSource, or for a table that was taken out of it,
    for KNOWN_SECONDS at most. Returns why it may still take some, empty where it does not."""
    end = time.monotonic() + KNOWN_SECONDS
    while True:
        known, found = context.registry.source(key), context.cache.get(key)
        if known is None or known.uid != uid or is_deleted(found, uid):
            return ""
        if table and known.pinned is not None and _last_table(known, table) is None:
            return ""
        if time.monotonic() >= end:
            what = f"DataSource {key.name} is stored without table {table}" if table else f"{key.name} is being deleted"
            why = known.edit or _waits_for(found)
            return f"{what}, and rows are still taken for it: {why.reason}: {why.message}"
        await asyncio.sleep(POLL_SECONDS)


async def settled(context: ReconcileContext, limits: GatewayLimits, caller: str, key: Key) -> Body | None:
    """The object; one that goes is waited for. Raises DefinitionRefused: it has not gone after DELETION_SECONDS."""
    kube = context.kube
    found = await kube.get(key.resource, key.namespace, key.name)
    if found is None or "deletionTimestamp" not in found["metadata"]:
        return found
    async with limits.definitions.hold(caller):
        if not await until_gone(context, key, found["metadata"]["uid"], DELETION_SECONDS):
            raise being_deleted(key)
    return await kube.get(key.resource, key.namespace, key.name)


async def until_gone(context: ReconcileContext, key: Key, uid: str, seconds: float | None = None) -> bool:
    """Wait until the API server has no object of this uid; returns whether that was within `seconds`."""
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        found = await context.kube.get(key.resource, key.namespace, key.name)
        if found is None or found["metadata"]["uid"] != uid:
            return True
        if end is not None and time.monotonic() > end:
            return False
        await asyncio.sleep(5 * POLL_SECONDS)


def _serves(context: ReconcileContext, key: Key, body: Body, generation: int) -> bool:
    conditions = conditions_of(body, generation)
    progressing, ready = conditions.get("Progressing", {}), conditions.get("Ready", {})
    if key.resource == DATA_SOURCES:
        if ready.get("status") != "True" and (stopped := obstacle(context.registry, context.cache, key)) is not None:
            raise DefinitionRefused("55000", _failure_message(key, stopped))
        return ready.get("status") == "True"
    if progressing.get("status") != "False":
        return False
    if progressing.get("reason") in _SERVES and ready.get("status") == "True":
        return True
    failed = ready if progressing.get("reason") in _SERVES else progressing
    while (cause := conditions.get(failed.get("message", "").removeprefix("see condition "))) is not None:
        failed = cause
    told = f"{failed['type']} is {failed['status']} ({failed['reason']})"
    raise DefinitionRefused(
        _SQLSTATES.get(failed["reason"], "55000"),
        f"{key.resource.kind} {key.name} is stored, and does not serve: {told}: {failed.get('message', '')}",
    )


def _deleted(key: Key) -> DefinitionRefused:
    return DefinitionRefused("55000", f"{key.resource.kind} {key.name} was deleted while the statement waited for it")
