"""The replication slot of a source, which a connection that ended may still hold for a moment."""

from __future__ import annotations

import time

import psycopg

from tidemark_replica.storage.errors import IngestionError
from tidemark_replica.storage.postgres.connection import Replication, Upstream
from tidemark_replica.storage.postgres.watch import check_slot, slot_state

SLOT_TRIES, SLOT_PAUSE_S = 20, 0.5


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
