"""Drops the replication slots of a deleted DataSource: without a reader they only keep WAL.

A source has the slot of its id. One that adopted the tables of another goes on with the slot that their bindings name.
"""

from __future__ import annotations

import time

from tidemark_persist import ShardNotFound, open_shard
from tidemark_persist.errors import ShardDeleted
from tidemark_protocol.plan.ingestion import IngestionDescription, PostgresSource, replication_slot
from tidemark_replica.storage.errors import IngestionError
from tidemark_replica.storage.postgres.connection import Credentials, Upstream
from tidemark_replica.storage.postgres.positions import SLOT, Positions
from tidemark_replica.storage.postgres.relations import Connection
from tidemark_replica.storage.postgres.watch import SlotState, slot_state
from tidemark_replica.storage.staged_bindings import StagedBindings

END_TRIES = 50


def release(description: IngestionDescription, spec: PostgresSource, credentials: Credentials) -> None:
    """Drops the slots, which no ingestion uses any more; does nothing where there are none. Raises IngestionError."""
    slots = {replication_slot(description.id), *_bound_slot(description.remap_location)}
    with Upstream(spec, credentials).connect() as connection:
        for slot in sorted(slots):
            state = slot_state(connection, slot)
            if state is None:
                continue
            if state.active_pid is not None:  # an ingestion that ended may still wait for its slot
                state = end_reader(connection, state)
            if state is not None:
                connection.execute("select pg_drop_replication_slot(%s)", (slot,))


def end_reader(connection: Connection, state: SlotState) -> SlotState | None:
    """Ends the process of the server that has the slot, and returns the state afterwards; None where the slot ended
    with it, as temporary ones do. Raises IngestionError."""
    connection.execute("select pg_terminate_backend(%s)", (state.active_pid,))
    for _ in range(END_TRIES):
        now = slot_state(connection, state.name)
        if now is None or now.active_pid is None:
            return now
        time.sleep(0.1)
    raise IngestionError(f"replication slot {state.name} is in use by a process of the server that does not end")


def _bound_slot(remap: str) -> list[str]:
    """The slot that the bindings name, if there are any."""
    bindings = StagedBindings()
    try:
        shard = open_shard(remap)
        if (upper := shard.state().upper) == 0:
            return []
        bindings.resume(shard.snapshot(upper - 1))
    except (ShardNotFound, ShardDeleted):
        return []
    positions = Positions(bindings.positions)
    return [positions.slot] if ("", SLOT) in positions.values else []
