"""Which process is meant where a caller names a ComputeReplica."""

from __future__ import annotations

from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.orchestrator.interface import resource_of
from tidemark_protocol.ids import ReplicaId


def named(running: RunningInstance, name: str) -> ReplicaId:
    """The one that answers, of several the one that serves; what none is called, where there is none."""
    shapes = [id for id in running.replicas if name in (id, resource_of(id)[0])]
    answering = [id for id in shapes if running.replicas[id].online]
    return next(iter([*answering, *shapes]), ReplicaId(name))
