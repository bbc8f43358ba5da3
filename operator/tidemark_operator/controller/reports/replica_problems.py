"""What replicas say keeps them from working, though no dataflow is the cause: their object store, their executors.

Status storage   {reason: AccessDenied, message: ...}    a trouble, until the replica says otherwise or is gone
Status executors {reason: QuotaExceeded, message: ...}
Status storage   {}                                      it is over
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark_operator.controller.reports.status_validation import makes_sense
from tidemark_operator.resources.conditions.instance import ReplicaTrouble
from tidemark_protocol.ids import ReplicaId

STORAGE, EXECUTORS = KINDS = ("storage", "executors")
_UNKNOWN = "Failed"


class Troubles:
    """Of the replicas that are connected."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, ReplicaId], ReplicaTrouble] = {}

    def all(self, kind: str) -> tuple[ReplicaTrouble, ...]:
        """In order of the replicas' names."""
        return tuple(self._said[at] for at in sorted(self._said) if at[0] == kind)

    def of(self, kind: str, replica: ReplicaId) -> ReplicaTrouble | None:
        return self._said.get((kind, replica))

    def hear(self, replica: ReplicaId, kind: str, fields: Mapping[str, str]) -> None:
        if kind not in KINDS or not makes_sense(kind, fields, ()):
            return
        if "message" not in fields:
            self._said.pop((kind, replica), None)
            return
        reason = fields.get("reason", _UNKNOWN)
        known = reason.isascii() and reason.isalpha() and len(reason) < 64
        self._said[kind, replica] = ReplicaTrouble(replica, reason if known else _UNKNOWN, fields["message"])

    def forget(self, replica: ReplicaId) -> None:
        for kind in KINDS:
            self._said.pop((kind, replica), None)
