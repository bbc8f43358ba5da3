"""Problems of replicas that no dataflow causes: their object store, their executors.

Status storage   {reason: AccessDenied, message: ...}    a problem, until the replica reports otherwise or is gone
Status executors {reason: QuotaExceeded, message: ...}
Status storage   {}                                      the problem is over
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark_operator.resources.conditions.instance import ReplicaProblem
from tidemark_protocol.ids import ReplicaId

STORAGE, EXECUTORS = KINDS = ("storage", "executors")
_NO_REASON = "Failed"


class ReplicaProblems:
    """The problems of connected replicas, by kind."""

    def __init__(self) -> None:
        self._problems: dict[tuple[str, ReplicaId], ReplicaProblem] = {}

    def all(self, kind: str) -> tuple[ReplicaProblem, ...]:
        """All problems of a kind, in the order of the replicas' names."""
        return tuple(self._problems[at] for at in sorted(self._problems) if at[0] == kind)

    def of(self, kind: str, replica: ReplicaId) -> ReplicaProblem | None:
        """The problem of one replica; None where it has none."""
        return self._problems.get((kind, replica))

    def record(self, replica: ReplicaId, kind: str, fields: Mapping[str, str]) -> None:
        """Record a status of the replica itself. A reason that is not CamelCase becomes `Failed`: it goes into a
        condition, and the API server would refuse the whole status."""
        if kind not in KINDS:
            return
        if "message" not in fields:
            self._problems.pop((kind, replica), None)
            return
        reason = fields.get("reason", _NO_REASON)
        valid = reason.isascii() and reason.isalpha() and len(reason) < 64
        self._problems[kind, replica] = ReplicaProblem(replica, reason if valid else _NO_REASON, fields["message"])

    def forget(self, replica: ReplicaId) -> None:
        """Forget a replica whose connection ended."""
        for kind in KINDS:
            self._problems.pop((kind, replica), None)
