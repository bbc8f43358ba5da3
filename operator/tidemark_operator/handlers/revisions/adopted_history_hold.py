"""What was adopted keeps all of its history until whatever is restored with it has begun.

    tables adopted ─► held as they are ─► the object is ten minutes old, and no Dataflow with `adopt` waits for its plan

A restored continual task goes on where its table ends, which may be far behind the tables that it reads: their read
policy would let go what it has not read yet. Nothing is stored: adopted tables are those whose ids do not begin with
the uid of their object, and an operator that starts holds them until it has seen what has become of the Dataflows.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from tidemark_operator.catalogue.registry import DataflowState
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.handlers.reconcile_context import World
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATAFLOWS, Body
from tidemark_operator.resources.conditions.dataflow import PlanRefused
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import ShardId

GRACE_MS = 600_000
"""Manifests are applied one after the other: what reads a table may come after it."""
LOOK_AGAIN_SECONDS = 60.0


def keep_history(world: World, key: Key, uid: str, shards: Iterable[tuple[ShardId, str]]) -> bool:
    """Holds those of the object's tables that were adopted, or lets go of them; whether it does hold some."""
    adopted = [(id, location) for id, location in shards if not id.startswith(f"{uid}/")]
    if not adopted:
        return False
    if _has_begun(world, key):
        let_go(world, key)
        return False
    book = world.fleet.book(key.namespace)
    for id, location in adopted:
        book.register(id, location)
        book.hold(id, _holder(key), Frontier.minimum())
    return True


def let_go(world: World, key: Key) -> None:
    world.fleet.book(key.namespace).release(_holder(key))


def _has_begun(world: World, key: Key) -> bool:
    body = world.cache.get(key)
    if body is not None and now_ms() - _created_ms(body) < GRACE_MS:
        return False
    others = world.cache.all(DATAFLOWS, key.namespace)
    return not any(_may_want_history(other, world.registry.dataflow(at)) for at, other in others)


def _may_want_history(body: Body, state: DataflowState | None) -> bool:
    """It is to go on with tables, and is neither planned nor refused for good. Where a table cannot be adopted, it is
    not for good: somebody is to do something about it."""
    if not body["spec"].get("adopt", False) or "deletionTimestamp" in body["metadata"]:
        return False
    if state is None or state.uid != body["metadata"]["uid"]:
        return True
    asked_again = state.answer is not None and state.answer.again_ms is not None
    refused = isinstance(state.plan, PlanRefused) and state.plan.reason != "CannotAdopt" and not asked_again
    return state.active is None and not refused


def _created_ms(body: Body) -> int:
    return int(datetime.fromisoformat(body["metadata"]["creationTimestamp"]).timestamp() * 1000)


def _holder(key: Key) -> str:
    return f"restored {key}"
