"""The replica process that a caller means by the name of a ComputeReplica."""

from __future__ import annotations

from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.orchestrator.interface import resource_of
from tidemark_protocol.ids import ReplicaId


def resolve_replica(running: RunningInstance, name: str) -> ReplicaId:
    """The connected process of that ComputeReplica, else its first one; the name itself where it has none.

    A ComputeReplica that is being resized has two processes.
    """
    shapes = [id for id in running.replicas if name in (id, resource_of(id)[0])]
    answering = [id for id in shapes if running.replicas[id].online]
    return next(iter([*answering, *shapes]), ReplicaId(name))
