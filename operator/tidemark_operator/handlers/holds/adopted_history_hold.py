"""Adopted tables keep all of their history until every Dataflow that is restored with them has begun.

    tables adopted ─► hold at their present since ─► the object is 10 minutes old, and no Dataflow with `adopt` is
                                                      still to be planned: the hold goes

A restored continual task goes on where its table ends. That may be far behind the tables that it reads, whose read
policy would compact what the task has not read yet. The hold is not stored: adopted tables are those whose ids do not
begin with the uid of their object, and a new operator holds them until it knows how the Dataflows stand.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from tidemark_operator.catalogue.dataflow_state import DataflowState
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATAFLOWS, Body
from tidemark_operator.resources.conditions.dataflow import PlanRefused
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import ShardId

GRACE_MS = 600_000
"""Manifests are applied one after the other: a reader of a table may be created after the table."""
POLL_SECONDS = 60.0


def hold_history(context: ReconcileContext, key: Key, uid: str, tables: Iterable[tuple[ShardId, str]]) -> bool:
    """Holds the object's adopted tables (ids and locations), or releases them. Returns whether any is held."""
    adopted = [(id, location) for id, location in tables if not id.startswith(f"{uid}/")]
    if not adopted:
        return False
    if _has_begun(context, key):
        release_history(context, key)
        return False
    book = context.fleet.book(key.namespace)
    for id, location in adopted:
        book.register(id, location)
        book.hold(id, _holder(key), Frontier.minimum())
    return True


def release_history(context: ReconcileContext, key: Key) -> None:
    context.fleet.book(key.namespace).release(_holder(key))


def _has_begun(context: ReconcileContext, key: Key) -> bool:
    body = context.cache.get(key)
    if body is not None and now_ms() - _created_ms(body) < GRACE_MS:
        return False
    others = context.cache.all(DATAFLOWS, key.namespace)
    return not any(_may_want_history(other, context.registry.dataflow(at)) for at, other in others)


def _may_want_history(body: Body, state: DataflowState | None) -> bool:
    """Whether a Dataflow adopts tables, and is neither planned nor refused for good. A refusal with reason CannotAdopt
    is not for good: the user is to move a table."""
    if not body["spec"].get("adopt", False) or "deletionTimestamp" in body["metadata"]:
        return False
    if state is None or state.uid != body["metadata"]["uid"]:
        return True
    answer, plan = state.planning.answer, state.plan
    asked_again = answer is not None and answer.again_ms is not None
    refused = isinstance(plan, PlanRefused) and plan.reason != "CannotAdopt" and not asked_again
    return state.active is None and not refused


def _created_ms(body: Body) -> int:
    return int(datetime.fromisoformat(body["metadata"]["creationTimestamp"]).timestamp() * 1000)


def _holder(key: Key) -> str:
    return f"restored {key}"
