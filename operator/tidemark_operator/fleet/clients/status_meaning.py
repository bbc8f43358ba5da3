"""The meaning of failures and statuses of replicas to a client that waits."""

from __future__ import annotations

from collections.abc import Iterable

from tidemark_operator.controller.frontiers.collection import Collection
from tidemark_protocol.ids import ReplicaId
from tidemark_protocol.messages.responses import Failure, FailureKind, Response, Status


def is_final(failed: Failure, tries: int) -> bool:
    """Whether a dataflow will not be computed: it was refused, or has failed `tries` times."""
    return failed.kind != FailureKind.FENCED and (not failed.attempts or failed.attempts >= tries)


def failure(exports: Iterable[Collection], tries: int = 1, target: ReplicaId | None = None) -> str | None:
    """The reason why a dataflow will not be computed, where each replica that has it says so, or the target; None where
    one may still compute it."""
    there = [on for export in exports for name, on in export.replicas.items() if target in (None, name)]
    of_each = (on.failures.values() for on in sorted(there, key=lambda on: on.excluded))  # first those that compute it
    found = [next((each for each in told if is_final(each, tries)), None) for told in of_each]
    first = found[0] if found and all(found) else None
    return None if first is None else first.message or "it failed"


def is_hydrated(response: Response) -> bool:
    """Whether the response says that a dataflow has hydrated."""
    return isinstance(response, Status) and response.kind == "hydration" and response.fields.get("state") == "hydrated"
