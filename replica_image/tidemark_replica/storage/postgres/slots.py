"""The replication slots of a source: one of its id, which a connection that ended may still hold for a moment. A source
that adopted the tables of another goes on with the slot that their bindings name.

A deleted DataSource's slots are dropped: without a reader they only keep WAL.
"""

from __future__ import annotations

import time

import psycopg

from tidemark_persist import ShardNotFound, open_shard
from tidemark_persist.errors import ShardDeleted
from tidemark_protocol.plan.ingestion import IngestionDescription, PostgresSource, replication_slot
from tidemark_replica.storage.errors import IngestionError
from tidemark_replica.storage.postgres.connection import Credentials, Replication, Upstream
from tidemark_replica.storage.postgres.positions import SLOT, Positions
from tidemark_replica.storage.postgres.relations import Connection
from tidemark_replica.storage.postgres.watch import SlotState, check_slot, slot_state
from tidemark_replica.storage.staged_bindings import StagedBindings

SLOT_TRIES, SLOT_PAUSE_S = 20, 0.5
"""The tries to use a slot, and the pause between two of them: the server may not have noticed yet that an earlier
connection, which has the slot, ended."""
END_TRIES = 50


def drop_slot(upstream: Upstream, replication: Replication, slot: str) -> None:
    """A slot of this name is of a process that died before it bound, or cannot be used any more. Raises
    IngestionError."""
    for _ in range(SLOT_TRIES):
        with upstream.connect() as connection:
            state = slot_state(connection, slot)
        if state is None:
            return
        if state.active_pid is None:
            replication.drop_slot(slot)
            return
        time.sleep(SLOT_PAUSE_S)
    raise IngestionError(f"replication slot {slot} is in use: end the process that pg_replication_slots names")


def start_at_slot(upstream: Upstream, stream: Replication, slot: str, lsn: int, publication: str) -> None:
    """Begins to stream. Raises Gap where the slot cannot give all transactions from the position on."""
    with upstream.connect() as connection:
        check_slot(slot_state(connection, slot), slot, lsn)
        for tries in range(SLOT_TRIES):
            try:
                stream.start(slot, lsn, publication)
                break
            except psycopg.errors.ObjectInUse:
                if tries == SLOT_TRIES - 1:
                    raise
                time.sleep(SLOT_PAUSE_S)  # the server has not noticed yet that an earlier connection ended
        # nobody makes a slot anew while it is used, so this state stays
        check_slot(slot_state(connection, slot), slot, lsn)


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
