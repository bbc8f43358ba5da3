"""The leader term: a number that grows with each operator that takes charge, kept in a Lease.

A replica serves the client of the highest term, so an operator that was replaced, and does not know it, is refused by
every replica; and it looks at the Lease every few seconds. `leaseTransitions` is the term; the API server's resource
version makes the increment atomic. Should the Lease have been deleted, replicas remember: the next term is raised above
what they report.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

from tidemark_operator.errors import LeadershipLost
from tidemark_operator.kube.client import LEASES, ApiError, Body, Conflict, Kube

LOG = logging.getLogger(__name__)
LEASE = "tidemark-operator"
ATTEMPTS = 10
LEASE_SECONDS, WATCH_SECONDS = 15, 5.0


class Leadership:
    """The term of this process. Only ever raised."""

    def __init__(self, kube: Kube, namespace: str, identity: str) -> None:
        self._kube, self._namespace, self._identity = kube, namespace, identity
        self.term = 0

    async def claim(self, above: int = 0) -> int:
        """Takes charge under a new term, higher than every one before and than `above`."""
        for _ in range(ATTEMPTS):
            lease = await self._kube.get(LEASES, self._namespace, LEASE)
            term = max(_term(lease), above) + 1
            try:
                await self._write(lease, term)
            except Conflict:
                continue
            self.term = term
            LOG.info("leading under term %d", term)
            return term
        raise LeadershipLost(f"could not take Lease {self._namespace}/{LEASE}: others keep changing it")

    async def outranked(self, by: int) -> int:
        """A replica serves a higher term. Somebody else leads (raises LeadershipLost), or the Lease was deleted and
        made anew, and our term must be raised above it."""
        lease = await self._kube.get(LEASES, self._namespace, LEASE)
        if _holder(lease) != self._identity and _term(lease) >= by:
            raise self._lost(lease)
        return await self.claim(above=by)

    async def watch(self) -> None:
        """Until another process leads: raises LeadershipLost. An API server that is away is asked again; replicas
        refuse us meanwhile."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                lease = await self._kube.get(LEASES, self._namespace, LEASE)
            except ApiError as error:
                LOG.warning("who leads is not known now: %s", error)
                continue
            if _holder(lease) != self._identity and _term(lease) > self.term:
                raise self._lost(lease)

    def _lost(self, lease: Body | None) -> LeadershipLost:
        return LeadershipLost(f"{_holder(lease)} leads under term {_term(lease)}, this process under {self.term}")

    async def _write(self, lease: Body | None, term: int) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {
            "holderIdentity": self._identity,
            "leaseTransitions": term,
            "acquireTime": now,
            "renewTime": now,
            "leaseDurationSeconds": LEASE_SECONDS,
        }
        if lease is None:
            await self._kube.create(LEASES, self._namespace, {"metadata": {"name": LEASE}, "spec": spec})
        else:
            await self._kube.replace(LEASES, self._namespace, LEASE, {**lease, "spec": spec})


def _holder(lease: Body | None) -> str:
    return str((lease or {}).get("spec", {}).get("holderIdentity"))


def _term(lease: Body | None) -> int:
    return int((lease or {}).get("spec", {}).get("leaseTransitions") or 0)
