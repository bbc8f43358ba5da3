"""What statuses of replicas mean to a client that waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidemark_operator.controller.frontiers.collection import Collection
from tidemark_protocol.ids import ReplicaId
from tidemark_protocol.messages.responses import Response, Status


def is_failure(kind: str, fields: Mapping[str, str], tries: int) -> bool:
    """Whether the status says that a dataflow will not be computed: refused, or failed `tries` times."""
    return kind == "refused" or (kind.endswith("_failed") and int(fields.get("failures", tries)) >= tries)


def failure(exports: Iterable[Collection], tries: int = 1, target: ReplicaId | None = None) -> str | None:
    """Why a dataflow will not be computed, where each replica that has it says so, or the target; None where one may
    still compute it."""
    there = [on for export in exports for name, on in export.replicas.items() if target in (None, name)]
    of_each = (on.statuses for on in sorted(there, key=lambda on: on.excluded))  # replicas that compute it come first
    failures = [next((f for kind, f in each.items() if is_failure(kind, f, tries)), None) for each in of_each]
    first = failures[0] if failures and all(failures) else None
    return None if first is None else first.get("message") or first.get("reason") or "it failed"


def is_hydrated(response: Response) -> bool:
    """Whether the response says that a dataflow has hydrated."""
    return isinstance(response, Status) and response.kind == "hydration" and response.fields.get("state") == "hydrated"
