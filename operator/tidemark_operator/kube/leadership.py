"""Leadership: a Lease that one operator holds and renews, and a term that each new leader increments.

    stand by ──► the Lease is free, released or expired ──► claim (term + 1) ──► renew ... ──► release
                                                                another operator holds it ──► LeadershipLost

A process may be suspended for any time and continue without noticing, so there are two fences. Towards replicas it is
the term (`leaseTransitions`): a replica serves the client with the highest one. Towards the API server it is time: a
leader that has not renewed for FRESH_SECONDS (by a monotonic clock that runs during sleep) writes nothing until a
renewal succeeds, since another operator may take the Lease LEASE_SECONDS after the last renewal. The Lease's resource
version makes each change atomic. After a deletion of the Lease, replicas still know the last term, and the next one is
raised above it. A term from a replica that operators cannot have reached is refused: the Lease holds 2^31 terms, and
after the last of them no operator could lead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime

from tidemark_operator.errors import LeadershipLost, OperatorError
from tidemark_operator.kube.client import LEASES, ApiError, Body, Conflict, Kube
from tidemark_operator.kube.lease import PROCESS, LeaseObserver, holder_of, now_seconds, spec_of, term_of
from tidemark_operator.kube.lease_holder_process import has_ended, this_process

LOG = logging.getLogger(__name__)
LEASE = "tidemark-operator"
ATTEMPTS = 10
LEASE_SECONDS = 10
FRESH_SECONDS = 7.0
RENEW_SECONDS = 2.0
LOOK_SECONDS = 1.0
# the number of terms that may have been lost with a deleted Lease
MOST_FORGOTTEN_TERMS = 2**20
# for one or two requests: a hanging connection must not cost the Lease
PATIENCE_SECONDS = 3.0


class Leadership:
    """The term of this process: 0 until it leads; it only grows. `clock`: seconds, monotonic, running during sleep."""

    def __init__(self, kube: Kube, namespace: str, identity: str, clock: Callable[[], float] = now_seconds) -> None:
        self._kube, self._namespace, self._identity, self._clock = kube, namespace, identity, clock
        self._lease: Body | None = None
        self._renewed = 0.0
        self._turn = asyncio.Lock()
        self._first = 0
        self.term = 0

    @property
    def lease_name(self) -> str:
        """The kind, namespace and name of the Lease, for messages."""
        return f"Lease {self._namespace}/{LEASE}"

    async def stand_by(self) -> int:
        """Wait until this process leads; return its term. API failures are logged and retried."""
        seen = LeaseObserver(self._identity, self._clock)
        while True:
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    lease = await self._kube.get(LEASES, self._namespace, LEASE)
                    if seen.is_free(lease, has_ended):
                        self._lease = lease
                        if await self._take(term_of(lease) + 1):
                            return self.term
            except (ApiError, TimeoutError) as error:
                reason = str(error) or f"no answer within {PATIENCE_SECONDS:.0f} s"
                LOG.warning("standing by, the Lease cannot be read: %s", reason)
            await asyncio.sleep(LOOK_SECONDS)

    async def claim(self, above: int = 0) -> int:
        """Take the Lease from any holder, with a term above its term and above `above`; return the term.

        Raises:
            LeadershipLost: other writers changed the Lease in each of ATTEMPTS tries.
        """
        async with self._turn:
            for _ in range(ATTEMPTS):
                self._lease = await self._kube.get(LEASES, self._namespace, LEASE)
                if await self._take(max(term_of(self._lease), above) + 1):
                    return self.term
        raise LeadershipLost(f"{self.lease_name} cannot be taken: other operators change it again and again")

    async def keep(self) -> None:
        """Renew every RENEW_SECONDS, until cancelled; raises LeadershipLost once another operator holds the Lease."""
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await self.renew()
            except (ApiError, TimeoutError) as error:
                reason = str(error) or f"not renewed within {PATIENCE_SECONDS:.0f} s"
                LOG.warning("%s: %s", self.lease_name, reason)

    async def renew(self) -> None:
        """Renew once; raises ApiError, LeadershipLost."""
        async with self._turn:
            await self._rewrite(self._identity)

    async def release(self) -> None:
        """Release the Lease, if this process holds it, so that a standby need not wait. Stop acting before."""
        if holder_of(self._lease) != self._identity:
            return
        try:
            async with asyncio.timeout(PATIENCE_SECONDS), self._turn:
                await self._rewrite("")
        except (ApiError, TimeoutError, LeadershipLost) as error:
            LOG.info("%s cannot be released, it expires instead: %s", self.lease_name, error)

    async def outranked(self, by: int) -> int:
        """Raise the term above `by`, which a replica serves: the Lease was deleted and created again.

        Raises:
            LeadershipLost: another operator leads.
            OperatorError: operators cannot have reached this term.
        """
        lease = await self._kube.get(LEASES, self._namespace, LEASE)
        if holder_of(lease) not in ("", self._identity):
            raise self._leadership_lost(lease)
        if by - self._first > MOST_FORGOTTEN_TERMS:
            raise OperatorError(
                f"the replica reports an operator of term {by}, which is impossible: this operator began with "
                f"{self._first}. Restart the replica"
            )
        return await self.claim(above=by)

    @property
    def leads(self) -> bool:
        """Whether this process holds the Lease, and no other operator can have taken it."""
        return holder_of(self._lease) == self._identity and self._unrenewed_seconds() <= FRESH_SECONDS

    def check(self) -> None:
        """Raise ApiError unless this process leads; called before every write."""
        if not self.leads:
            raise ApiError(
                0,
                f"{self.lease_name} was not renewed for {self._unrenewed_seconds():.0f} s: the operator writes nothing"
                " until it is",
            )

    def _unrenewed_seconds(self) -> float:
        """The seconds since the Lease was last renewed."""
        return self._clock() - self._renewed

    async def _take(self, term: int) -> bool:
        """Write the Lease with a new term; False: another writer changed it first."""
        try:
            await self._write(term, self._identity)
        except Conflict:
            return False
        self.term, self._first = term, self._first or term
        LOG.info("leading under term %d", term)
        return True

    async def _rewrite(self, holder: str) -> None:
        """Write the Lease that this process holds; raises LeadershipLost where another operator holds it."""
        try:
            await self._write(self.term, holder)
        except ApiError as error:
            # 404: deleted. Conflict: deleted, taken, or our last write succeeded and its answer was lost
            if error.status != 404 and not isinstance(error, Conflict):
                raise
            self._lease = await self._kube.get(LEASES, self._namespace, LEASE)
            if self._lease is not None and holder_of(self._lease) != self._identity:
                raise self._leadership_lost(self._lease) from None
            if self._lease is None and not holder:
                return  # free already
            await self._write(max(self.term, term_of(self._lease)), holder)

    async def _write(self, term: int, holder: str) -> None:
        """`self._lease` is what it was; None: there is none."""
        began, now = self._clock(), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        old = self._lease or {"metadata": {"name": LEASE}}
        spec = {
            "holderIdentity": holder,
            "leaseTransitions": term,
            "acquireTime": now if term != term_of(self._lease) else spec_of(self._lease).get("acquireTime", now),
            "renewTime": now,
            "leaseDurationSeconds": LEASE_SECONDS,
        }
        annotations = {**(old["metadata"].get("annotations") or {}), PROCESS: this_process()}
        body = {**old, "metadata": {**old["metadata"], "annotations": annotations}, "spec": spec}
        if self._lease is None:
            self._lease = await self._kube.create(LEASES, self._namespace, body)
        else:
            self._lease = await self._kube.replace(LEASES, self._namespace, LEASE, body)
        # the time before the request: others count from when they see the Lease
        self._renewed = began

    def _leadership_lost(self, lease: Body | None) -> LeadershipLost:
        """The error that names who leads by this Lease."""
        leads = f"{holder_of(lease) or 'nobody'} leads under term {term_of(lease)}"
        return LeadershipLost(f"{leads}, this process under {self.term}")
