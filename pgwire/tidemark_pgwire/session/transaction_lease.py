"""The lease of a transaction: what its queries have read stays readable at its time until it ends.

BEGIN ──► a query takes the lease with it ──► renewed every RENEW_SECONDS, whether statements come or not ──► COMMIT,
          further ones add what they read               ROLLBACK, the end of the session, an error that no savepoint
                                                        stands before: ended

A lease ends by itself a minute after its last renewal, so a process that dies holds nothing for long. A new leader of
the operator knows no leases: the renewal says all that this one holds.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

from tidemark_pgwire import errors
from tidemark_pgwire.errors import WireError
from tidemark_pgwire.gateway import GatewayLink
from tidemark_protocol.pb import gateway_pb2 as pb

RENEW_SECONDS, RETRY_SECONDS = 15.0, 3.0
"""The pause between two renewals; and the one after a call that did not reach the gateway."""
TOO_OLD = "72000"
TOO_OLD_HINT = (
    "All queries of a transaction read at the time of its first one, which was kept for as long as could be: ROLLBACK, "
    "and begin again."
)
_FOR_GOOD = (TOO_OLD, "40001", "42000", "42501", errors.INVALID_AUTHORIZATION, errors.FEATURE_NOT_SUPPORTED)


class TransactionLease:
    """The lease of one session's transactions, a new one for each."""

    def __init__(self, link: GatewayLink, token: str, namespace: str) -> None:
        self._link, self._token, self._namespace = link, token, namespace
        self._id, self._as_of = "", 0
        self._relations: set[str] = set()
        self._is_asked = self._is_warned = False
        self._renewing: asyncio.Task[None] | None = None

    def ask(self) -> str:
        """The lease's id for a query of the transaction, which may hold what it reads from then on."""
        self._id, self._is_asked = self._id or secrets.token_hex(16), True
        return self._id

    def take(self, header: Any) -> str:
        """Take the header of the query's answer. Returns why its time is not held, once for a transaction; empty: it
        is, or the gateway holds none."""
        if header.leased:
            self._as_of = header.as_of
            self._relations |= set(header.leased)
            if self._renewing is None:
                self._renewing = asyncio.create_task(self._renew(self._id), name="lease of a transaction")
        elif not self._relations:
            self._is_asked = False
        is_news, self._is_warned = not self._is_warned, self._is_warned or bool(header.lease_refused)
        return header.lease_refused if is_news else ""

    def end(self) -> None:
        """The transaction has ended."""
        if self._renewing is not None:
            self._renewing.cancel()
        if self._is_asked:
            self._link.end_lease(self._token, self._id)
        self._id, self._relations, self._renewing = "", set(), None
        self._is_asked = self._is_warned = False

    async def _renew(self, id: str) -> None:
        """Renew until the lease cannot be held any more: a query says so, if there is one."""
        pause = RENEW_SECONDS
        while True:
            await asyncio.sleep(pause)
            asked = sorted(self._relations)
            request = pb.LeaseRequest(namespace=self._namespace, id=id, as_of=self._as_of, relations=asked)
            try:
                held = await self._link.renew_lease(self._token, request)
            except WireError as error:
                if error.sqlstate in _FOR_GOOD:
                    self._relations, self._renewing = set(), None  # what a later query reads is held anew
                    return
                pause = RETRY_SECONDS
            else:
                self._relations -= {*asked} - {*held}
                pause = RENEW_SECONDS
