"""Whether a standby operator may take the Lease.

Times in the Lease are of the holder's clock, which may be wrong, so they are only compared with each other: a Lease has
expired when it has not changed for its duration, by the standby's clock. A deleted Lease expires in the same way,
because its holder continues until its own time is over, or creates the Lease again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from tidemark_operator.kube.client import Body
from tidemark_operator.resources.manifest.meta import GROUP

LOG = logging.getLogger(__name__)
PROCESS = f"{GROUP}/process"
DEFAULT_SECONDS = 15


def now_seconds() -> float:
    """A monotonic clock (seconds) that also runs while the machine sleeps, as other operators' clocks do."""
    # CLOCK_BOOTTIME is Linux only, where CLOCK_MONOTONIC stops during sleep
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def spec_of(lease: Body | None) -> Body:
    spec: Body = (lease or {}).get("spec") or {}
    return spec


def term_of(lease: Body | None) -> int:
    return int(spec_of(lease).get("leaseTransitions") or 0)


def holder_of(lease: Body | None) -> str:
    """The holder's identity; empty: the Lease is free or released."""
    return str(spec_of(lease).get("holderIdentity") or "")


class LeaseObserver:
    """Observes the Lease for a standby: its last state, and since when it is unchanged.

    `identity`: of the standby; a Lease with it was taken by a request whose answer was lost.
    """

    def __init__(self, identity: str, clock: Callable[[], float]) -> None:
        self._identity, self._clock = identity, clock
        self._state: object = None
        self._since = clock()
        self._holder: str | None = None
        self._lasts: float = DEFAULT_SECONDS

    def is_free(self, lease: Body | None, has_ended: Callable[[str], bool]) -> bool:
        """Whether the standby may take the Lease. `has_ended`: whether a process in the annotation is known to have
        ended."""
        if lease is None:
            return self._holder is None or self._has_run_out("deleted")
        if holder_of(lease) in ("", self._identity):
            self._holder = None
            return True
        spec = spec_of(lease)
        self._lasts = spec.get("leaseDurationSeconds") or DEFAULT_SECONDS
        if self._holder != holder_of(lease):
            self._holder = holder_of(lease)
            LOG.info("standing by: %s leads under term %d", self._holder, term_of(lease))
        if self._has_run_out((holder_of(lease), spec.get("renewTime"), spec.get("leaseTransitions"))):
            return True
        return has_ended((lease["metadata"].get("annotations") or {}).get(PROCESS, ""))

    def _has_run_out(self, state: object) -> bool:
        """Whether the Lease is unchanged for its duration. `state`: what is compared."""
        now = self._clock()
        if state != self._state:
            self._state, self._since = state, now
        return now - self._since > self._lasts
