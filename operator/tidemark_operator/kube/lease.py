"""Whether a Lease is free: what one who stands by makes of what it sees.

Times in the Lease are of the holder's clock, which may be wrong, so they are compared with nothing but themselves: a
Lease has run out when it has not changed for as long as it lasts, by the clock of who looks. One that somebody held and
that is gone was deleted under its holder, who writes on until it is late, or makes it anew: it runs out like any other.
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
    """Never back, and on while the machine sleeps: where others go on meanwhile, they count it too."""
    # only Linux has it, and its monotonic clock stands still in sleep
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def spec_of(lease: Body | None) -> Body:
    spec: Body = (lease or {}).get("spec") or {}
    return spec


def term_of(lease: Body | None) -> int:
    return int(spec_of(lease).get("leaseTransitions") or 0)


def holder_of(lease: Body | None) -> str:
    """Empty: nobody's, or let go of."""
    return str(spec_of(lease).get("holderIdentity") or "")


class LeaseObserver:
    """What was seen last, and since when it has been so. What is held by `identity` was taken by a request whose answer
    was lost."""

    def __init__(self, identity: str, clock: Callable[[], float]) -> None:
        self._identity, self._clock = identity, clock
        self._said: object = None
        self._since = clock()
        self._holder: str | None = None
        self._lasts: float = DEFAULT_SECONDS

    def is_free(self, lease: Body | None, has_ended: Callable[[str], bool]) -> bool:
        """Whether it may be taken. `has_ended`: whether the process so written down is known to have."""
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

    def _has_run_out(self, said: object) -> bool:
        """Whether it has been so for as long as the Lease lasts."""
        now = self._clock()
        if said != self._said:
            self._said, self._since = said, now
        return now - self._since > self._lasts
