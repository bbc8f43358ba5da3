"""How replicas get on with the object store of their instance, as they say it of themselves.

Status storage {reason: AccessDenied, message: ...}      a trouble, until the replica says otherwise or is gone
Status storage {}                                        it answers
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark_operator.controller.said import makes_sense
from tidemark_operator.resources.instance_conditions import StoreTrouble
from tidemark_protocol.ids import ReplicaId

KIND = "storage"
_UNKNOWN = "Failed"


class Stores:
    """Of the replicas that are connected."""

    def __init__(self) -> None:
        self._said: dict[ReplicaId, StoreTrouble] = {}

    @property
    def troubles(self) -> tuple[StoreTrouble, ...]:
        """In order of the replicas' names."""
        return tuple(self._said[replica] for replica in sorted(self._said))

    def hear(self, replica: ReplicaId, kind: str, fields: Mapping[str, str]) -> None:
        if kind != KIND or not makes_sense(kind, fields, ()):
            return
        if "message" not in fields:
            self.forget(replica)
            return
        reason = fields.get("reason", _UNKNOWN)
        known = reason.isascii() and reason.isalpha() and len(reason) < 64
        self._said[replica] = StoreTrouble(replica, reason if known else _UNKNOWN, fields["message"])

    def forget(self, replica: ReplicaId) -> None:
        self._said.pop(replica, None)
