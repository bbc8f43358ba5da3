"""The revisions that a process of a ComputeReplica hydrates, as the ComputeReplica's status has them.

    status.hydrating               {incarnation, dataflows: [{dataflow, revision}]}
    status.hydratingIn.<shape>     the same, where the process is one shape of several

The record stays until the next process answers: after a death it tells which revisions were in the slots.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_operator.kube.client import Body


@dataclass(frozen=True)
class SlotRecord:
    """`revisions`: names of the revisions that the process hydrates."""

    incarnation: str = ""
    revisions: tuple[str, ...] = ()

    @staticmethod
    def of(body: Body | None, shape: str) -> SlotRecord:
        found = _document(body, shape)
        return SlotRecord(found.get("incarnation", ""), tuple(d["revision"] for d in found.get("dataflows") or ()))


def dataflows_of(body: Body, shape: str) -> list[str]:
    """Names of the Dataflows that the process hydrates."""
    return sorted({each["dataflow"] for each in _document(body, shape).get("dataflows") or ()})


def _document(body: Body | None, shape: str) -> Body:
    status = (body or {}).get("status") or {}
    return ((status.get("hydratingIn") or {}).get(shape) if shape else status.get("hydrating")) or {}
