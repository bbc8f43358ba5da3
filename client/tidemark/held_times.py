"""Times that a client keeps readable by leases, which a thread renews until they are let go.

    a query with a lease, or `hold` ──► the gateway holds what was read ──► renewed ──► `keep`, `close`: ended

Nothing fails here: a time that cannot be held is one that a later read finds gone, and names. An end that could not be
sent is not sent again: the lease ends by itself a minute after its last renewal.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass

from tidemark.connection import Connection
from tidemark.errors import DataError, Error, ProgrammingError
from tidemark.gateway.channel import call_errors
from tidemark_protocol.pb.gateway_pb2 import EndLeasesRequest, LeaseRequest

RENEW_SECONDS = 15.0
CALL_SECONDS = 10.0


def new_lease() -> str:
    """The id of a lease, which nobody guesses."""
    return secrets.token_hex(16)


@dataclass(frozen=True)
class HeldTime:
    """A time that the lease `id` holds. `relations`: their ids, as the gateway names them."""

    id: str
    relations: tuple[str, ...]


class HeldTimes:
    """The times that one stream holds. `connect`: makes a connection for the thread."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._held: dict[int, HeldTime] = {}
        self._ended: list[str] = []
        self._lock, self._closing = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None

    def __contains__(self, time: object) -> bool:
        return time in self._held

    def take(self, time: int, lease: str, relations: Iterable[str]) -> None:
        """A query as of this time was asked with the lease, which holds the relations; none: it holds nothing."""
        if not (held := tuple(relations)):
            return
        with self._lock:
            if time in self._held:
                self._ended.append(lease)
                return
            self._held[time] = HeldTime(lease, held)
        if self._thread is None:
            self._thread = threading.Thread(target=self._renew, name="leases of a stream", daemon=True)
            self._thread.start()

    def hold(self, connection: Connection, time: int, relations: Iterable[str]) -> None:
        """Hold the relations at the time from now on, if they can be read at it."""
        lease = HeldTime(new_lease(), tuple(relations))
        if time in self._held or not lease.relations:
            return
        with suppress(Error):
            self.take(time, lease.id, _granted(connection, time, lease))

    def keep(self, times: Collection[int]) -> None:
        """Let all other times go."""
        with self._lock:
            for time in [time for time in self._held if time not in times]:
                self._ended.append(self._held.pop(time).id)

    def close(self) -> None:
        """Let all times go; without waiting for the gateway for long."""
        self.keep(())
        self._closing.set()
        if self._thread is not None:
            self._thread.join(CALL_SECONDS)

    def _renew(self) -> None:
        """Renew what is held, and end what was let go, by a connection that is made anew where the gateway could not be
        asked. A refusal, as of a time that is gone, is an answer: the connection is good."""
        connection: Connection | None = None
        closing = False
        while not closing:
            closing = self._closing.wait(RENEW_SECONDS)
            with self._lock:
                held, ended, self._ended = dict(self._held), self._ended, []
            try:
                connection = connection or self._connect()
                failed: Error | None = None
                for time, lease in held.items():
                    try:
                        _granted(connection, time, lease)
                    except (DataError, ProgrammingError):
                        continue  # a time or a relation that is gone
                    except Error as error:  # keeps no other from being held
                        failed = error
                if ended:
                    gateway = connection.link.gateway()
                    with call_errors(gateway):
                        request, call = EndLeasesRequest(ids=ended), connection.link.stub().EndLeases
                        call(request, metadata=gateway.metadata, timeout=CALL_SECONDS)
                if failed is not None:
                    raise failed
            except Error:
                if connection is not None:
                    connection.close()
                connection = None
        if connection is not None:
            connection.close()


def _granted(connection: Connection, time: int, lease: HeldTime) -> tuple[str, ...]:
    """The relations that are held. Raises Error."""
    gateway = connection.link.gateway()
    request = LeaseRequest(namespace=connection.namespace, id=lease.id, as_of=time, relations=lease.relations)
    with call_errors(gateway):
        reply = connection.link.stub().Lease(request, metadata=gateway.metadata, timeout=CALL_SECONDS)
        return tuple(reply.relations)
    raise AssertionError
