"""What `wait` waits for, by the conditions of the object in the operator's cache.

written, of generation n ──► Progressing of n is False: UpToDate or Finished, and Ready is True
                             ──► after an edit: a later time is complete than was then                ──► it serves
                         ──► Progressing of n is False for another reason: waiting changes nothing   ──► refused
                         ──► a DataSource: Ready of n is True                                        ──► it ingests
                         ──► Ready of n is False, but not because it starts or its replicas are away ──► refused
deleted, of this uid     ──► no object of this uid                                                   ──► gone
"""

from __future__ import annotations

import asyncio
import time

from tidemark_operator.errors import DefinitionRefused
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.kube.cache import Key, is_deleted
from tidemark_operator.kube.client import DATA_SOURCES, Body

POLL_SECONDS = 0.1
UNSEEN_SECONDS = 10.0
"""How long an object may be missing in the cache, whose watch may be late, before the API server is asked for it."""
KNOWN_SECONDS = 30.0
"""How long CREATE TABLE waits until SQL knows the table: its replicas may be away."""
_SERVES = ("UpToDate", "Finished")
_BEGINS = ("Starting", "NoReplicaOnline")
"""Reasons of a DataSource that is not Ready, and will be."""
_SQLSTATES = {
    "Syntax": "42601",
    "UnresolvedColumn": "42703",
    "Ambiguous": "42702",
    "Type": "42804",
    "DuplicateName": "42701",
    "ReservedName": "42939",
    "ForbiddenFunction": "42883",
    "Unsupported": "0A000",
    "TooLarge": "54000",
    "PlanTooLarge": "54000",
    "WaitingForInputs": "42P01",
    "Cycle": "42P17",
}
"""Of the reasons of conditions; all others: 55000."""


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
            if _serves(key, found, generation):
                complete = found["status"].get("writeFrontier") or {}
                time_ = complete.get("time", 0)
                if not edited or generation == 1 or complete.get("finished") or (first is not None and time_ > first):
                    return
                first = time_ if first is None else first
        await asyncio.sleep(POLL_SECONDS)


async def until_known(context: ReconcileContext, key: Key, uid: str) -> None:
    """Wait until statements may name the tables of the DataSource, for KNOWN_SECONDS at most, or its conditions say
    that waiting changes nothing."""
    end = time.monotonic() + KNOWN_SECONDS
    while time.monotonic() < end:
        known, found = context.registry.source(key), context.cache.get(key)
        if known is not None and known.uid == uid and known.pinned is not None:
            return
        if found is not None and found["metadata"]["uid"] == uid:
            ready = _conditions(found, found["metadata"]["generation"]).get("Ready", {})
            if ready.get("status") == "False" and ready["reason"] not in _BEGINS:
                return
        await asyncio.sleep(POLL_SECONDS)


async def until_refused(context: ReconcileContext, key: Key, uid: str) -> None:
    """Wait until the gateway takes no rows for a deleted DataSource any more, for KNOWN_SECONDS at most."""
    end = time.monotonic() + KNOWN_SECONDS
    while time.monotonic() < end:
        known = context.registry.source(key)
        if known is None or known.uid != uid or is_deleted(context.cache.get(key), uid):
            return
        await asyncio.sleep(POLL_SECONDS)


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


def _conditions(body: Body, generation: int) -> dict[str, Body]:
    """Those of this generation, by type."""
    listed = (body.get("status") or {}).get("conditions") or ()
    return {each["type"]: each for each in listed if each.get("observedGeneration", 0) >= generation}


def _serves(key: Key, body: Body, generation: int) -> bool:
    conditions = _conditions(body, generation)
    progressing, ready = conditions.get("Progressing", {}), conditions.get("Ready", {})
    if key.resource == DATA_SOURCES:
        if ready.get("status") == "True":
            return True
        if ready.get("status") != "False" or ready["reason"] in _BEGINS:
            return False
        progressing = ready
    if progressing.get("status") != "False":
        return False
    if progressing.get("reason") in _SERVES and ready.get("status") == "True":
        return True
    failed = ready if progressing.get("reason") in _SERVES else progressing
    while (cause := conditions.get(failed.get("message", "").removeprefix("see condition "))) is not None:
        failed = cause
    reason, told = failed["reason"], f"{failed['type']} is {failed['status']} ({failed['reason']})"
    raise DefinitionRefused(
        _SQLSTATES.get(reason, "55000"),
        f"{key.resource.kind} {key.name} is stored, and does not serve: {told}: {failed.get('message', '')}",
    )


def _deleted(key: Key) -> DefinitionRefused:
    return DefinitionRefused("55000", f"{key.resource.kind} {key.name} was deleted while the statement waited for it")
