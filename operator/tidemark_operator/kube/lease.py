"""Whether a Lease is free: what one who stands by makes of what it sees.

Times in the Lease are of the holder's clock, which may be wrong, so they are compared with nothing but themselves: a
Lease has run out when it has not changed for as long as it lasts, by the clock of who looks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from tidemark_operator.kube.client import Body
from tidemark_operator.resources.meta import GROUP

LOG = logging.getLogger(__name__)
PROCESS = f"{GROUP}/process"
DEFAULT_SECONDS = 15


def spec_of(lease: Body | None) -> Body:
    spec: Body = (lease or {}).get("spec") or {}
    return spec


def term_of(lease: Body | None) -> int:
    return int(spec_of(lease).get("leaseTransitions") or 0)


def holder_of(lease: Body | None) -> str:
    """Empty: nobody's, or let go of."""
    return str(spec_of(lease).get("holderIdentity") or "")


class Seen:
    """What was seen last, and since when it has been so. What is held by `identity` was taken by a request whose answer
    was lost."""

    def __init__(self, identity: str, clock: Callable[[], float]) -> None:
        self._identity, self._clock = identity, clock
        self._said: object = None
        self._since = clock()
        self._holder: str | None = None

    def is_free(self, lease: Body | None, has_ended: Callable[[str], bool]) -> bool:
        """Whether it may be taken. `has_ended`: whether the process so written down is known to have."""
        if lease is None or holder_of(lease) in ("", self._identity):
            return True
        spec = spec_of(lease)
        said = (holder_of(lease), spec.get("renewTime"), spec.get("leaseTransitions"))
        now = self._clock()
        if said != self._said:
            self._said, self._since = said, now
        if self._holder != holder_of(lease):
            self._holder = holder_of(lease)
            LOG.info("standing by: %s leads under term %d", self._holder, term_of(lease))
        if now - self._since > (spec.get("leaseDurationSeconds") or DEFAULT_SECONDS):
            return True
        return has_ended((lease["metadata"].get("annotations") or {}).get(PROCESS, ""))
