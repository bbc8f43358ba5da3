"""What replicas say keeps them from working, though no dataflow is the cause: their object store, their executors.

Status storage   {reason: AccessDenied, message: ...}    a trouble, until the replica says otherwise or is gone
Status executors {reason: QuotaExceeded, message: ...}
Status storage   {}                                      it is over
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark_operator.controller.said import makes_sense
from tidemark_operator.resources.instance_conditions import ReplicaTrouble
from tidemark_protocol.ids import ReplicaId

STORAGE, EXECUTORS = "storage", "executors"
_UNKNOWN = "Failed"


class Troubles:
    """Of one kind, of the replicas that are connected."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._said: dict[ReplicaId, ReplicaTrouble] = {}

    @property
    def all(self) -> tuple[ReplicaTrouble, ...]:
        """In order of the replicas' names."""
        return tuple(self._said[replica] for replica in sorted(self._said))

    def of(self, replica: ReplicaId) -> ReplicaTrouble | None:
        return self._said.get(replica)

    def hear(self, replica: ReplicaId, kind: str, fields: Mapping[str, str]) -> None:
        if kind != self._kind or not makes_sense(kind, fields, ()):
            return
        if "message" not in fields:
            self.forget(replica)
            return
        reason = fields.get("reason", _UNKNOWN)
        known = reason.isascii() and reason.isalpha() and len(reason) < 64
        self._said[replica] = ReplicaTrouble(replica, reason if known else _UNKNOWN, fields["message"])

    def forget(self, replica: ReplicaId) -> None:
        self._said.pop(replica, None)
