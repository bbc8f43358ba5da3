"""What some statuses of replicas mean to those who wait for them."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark_protocol.responses import Response, Status


def is_failure(kind: str, fields: Mapping[str, str], tries: int) -> bool:
    """Whether it says that nothing will come of a dataflow, which has failed so many times."""
    return kind == "refused" or (kind.endswith("_failed") and int(fields.get("failures", tries)) >= tries)


def is_hydrated(response: Response) -> bool:
    """Whether it says that a dataflow has come to the end of its hydration."""
    return isinstance(response, Status) and response.kind == "hydration" and response.fields.get("state") == "hydrated"
