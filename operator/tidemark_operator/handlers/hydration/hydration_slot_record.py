"""Who a process of a ComputeReplica hydrates, as the ComputeReplica's status has it (hydration_slots.py writes it).

    status.hydrating               {incarnation, dataflows: [{dataflow, revision}]}
    status.hydratingIn.<shape>     likewise, where a process is one shape of several

It stands until the next process answers: of one that ended it tells who was in the slots then.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_operator.kube.client import Body


@dataclass(frozen=True)
class Record:
    """`revisions`: names of those that the process hydrates."""

    incarnation: str = ""
    revisions: tuple[str, ...] = ()

    @staticmethod
    def of(body: Body | None, shape: str) -> Record:
        found = _document(body, shape)
        return Record(found.get("incarnation", ""), tuple(d["revision"] for d in found.get("dataflows") or ()))


def names_of(body: Body, shape: str) -> list[str]:
    """Of the Dataflows."""
    return sorted({each["dataflow"] for each in _document(body, shape).get("dataflows") or ()})


def _document(body: Body | None, shape: str) -> Body:
    status = (body or {}).get("status") or {}
    return ((status.get("hydratingIn") or {}).get(shape) if shape else status.get("hydrating")) or {}
