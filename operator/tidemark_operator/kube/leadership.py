"""Who leads: a Lease that one operator holds and renews, and a term that grows with each that takes charge.

    stand by ──► the Lease is nobody's, let go of, or run out ──► claim (term + 1) ──► renew, and renew ──► release
                                                                        another holds it ──► LeadershipLost

Two fences, since a process may stand still for as long as it likes and go on without knowing. Towards replicas it is
the term (`leaseTransitions`): a replica serves the client of the highest. Towards the API server it is time: who has
not renewed for FRESH_SECONDS, by a clock that never goes back and does not stop in sleep, writes nothing until a
renewal has shown that nobody else took the Lease, which could have happened LEASE_SECONDS after the last. The API
server's resource version makes each change of the Lease atomic. Should it have been deleted, replicas remember: the
next term is raised above theirs. A term that operators cannot have come to is a lie of that replica's, and nothing is
raised for it: the Lease has room for 2^31 terms, and past the last of them nobody could ever lead.
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
# so many more operators than the Lease remembers may have led since replicas were made
MOST_FORGOTTEN_TERMS = 2**20
# of one request or two; a connection that hangs must not cost the Lease
PATIENCE_SECONDS = 3.0


class Leadership:
    """The term of this process, 0 until it leads. Only ever raised."""

    def __init__(self, kube: Kube, namespace: str, identity: str, clock: Callable[[], float] = now_seconds) -> None:
        self._kube, self._namespace, self._identity, self._clock = kube, namespace, identity, clock
        self._lease: Body | None = None
        self._renewed = 0.0
        self._turn = asyncio.Lock()
        self._first = 0
        self.term = 0

    @property
    def where(self) -> str:
        return f"Lease {self._namespace}/{LEASE}"

    async def stand_by(self) -> int:
        """Until this process leads: its term. An API server that is away is asked again."""
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
                LOG.warning("standing by: %s", error or f"no answer within {PATIENCE_SECONDS:.0f} s")
            await asyncio.sleep(LOOK_SECONDS)

    async def claim(self, above: int = 0) -> int:
        """Takes charge, whoever leads, under a new term, higher than every one before and than `above`."""
        async with self._turn:
            for _ in range(ATTEMPTS):
                self._lease = await self._kube.get(LEASES, self._namespace, LEASE)
                if await self._take(max(term_of(self._lease), above) + 1):
                    return self.term
        raise LeadershipLost(f"could not take {self.where}: others keep changing it")

    async def keep(self) -> None:
        """Renews until cancelled; raises LeadershipLost once another holds the Lease."""
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await self.renew()
            except (ApiError, TimeoutError) as error:
                LOG.warning("%s: %s", self.where, error or f"not renewed within {PATIENCE_SECONDS:.0f} s")

    async def renew(self) -> None:
        """One renewal; raises ApiError, and LeadershipLost."""
        async with self._turn:
            await self._rewrite(self._identity)

    async def release(self) -> None:
        """Whoever stands by need not wait. For a process that has stopped acting; nothing where it does not lead."""
        if holder_of(self._lease) != self._identity:
            return
        try:
            async with asyncio.timeout(PATIENCE_SECONDS), self._turn:
                await self._rewrite("")
        except (ApiError, TimeoutError, LeadershipLost) as error:
            LOG.info("%s is not let go of: %s", self.where, error)

    async def outranked(self, by: int) -> int:
        """A replica serves a higher term. Somebody else leads (raises LeadershipLost), or the Lease was deleted and
        made anew, and our term must be raised above it; raises OperatorError for a term that cannot be."""
        lease = await self._kube.get(LEASES, self._namespace, LEASE)
        if holder_of(lease) not in ("", self._identity):
            raise self._lost(lease)
        if by - self._first > MOST_FORGOTTEN_TERMS:
            raise OperatorError(
                f"the replica says that it serves an operator of term {by}, which none can have come to: this one "
                f"began with {self._first}. Restart the replica"
            )
        return await self.claim(above=by)

    @property
    def leads(self) -> bool:
        """False where another may have taken the Lease."""
        return holder_of(self._lease) == self._identity and self._late() <= FRESH_SECONDS

    def check(self) -> None:
        """Raises ApiError where this process does not lead: what writes, asks first."""
        if not self.leads:
            raise ApiError(0, f"{self.where} was not renewed for {self._late():.0f} s: nothing is written until it is")

    def _late(self) -> float:
        return self._clock() - self._renewed

    async def _take(self, term: int) -> bool:
        """False: somebody else changed it first."""
        try:
            await self._write(term, self._identity)
        except Conflict:
            return False
        self.term, self._first = term, self._first or term
        LOG.info("leading under term %d", term)
        return True

    async def _rewrite(self, holder: str) -> None:
        """Of the Lease that this process holds; raises LeadershipLost where it does not."""
        try:
            await self._write(self.term, holder)
        except ApiError as error:
            # 404: it was deleted. Conflict: that, or our last write got there and its answer did not, or it was taken
            if error.status != 404 and not isinstance(error, Conflict):
                raise
            self._lease = await self._kube.get(LEASES, self._namespace, LEASE)
            if self._lease is not None and holder_of(self._lease) != self._identity:
                raise self._lost(self._lease) from None
            if self._lease is None and not holder:
                return  # nobody's already
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
        # from before it was asked for: others count from when they see it
        self._renewed = began

    def _lost(self, lease: Body | None) -> LeadershipLost:
        leads = f"{holder_of(lease) or 'nobody'} leads under term {term_of(lease)}"
        return LeadershipLost(f"{leads}, this process under {self.term}")
