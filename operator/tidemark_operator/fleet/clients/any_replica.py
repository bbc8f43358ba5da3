"""Asks what any replica can answer: online replicas, one after the other, until one does."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import grpc

from tidemark_operator.controller.replicas.replica_connection import ReplicaConnection
from tidemark_operator.errors import OperatorError, Waiting
from tidemark_operator.fleet.replica_state import ReplicaState
from tidemark_protocol.ids import ReplicaId

LOG = logging.getLogger(__name__)
T = TypeVar("T")


async def ask_any(
    namespace: str,
    instance: str,
    replicas: Mapping[ReplicaId, ReplicaState],
    question: Callable[[ReplicaConnection], Awaitable[T]],
) -> tuple[ReplicaId, T]:
    """The answer, and the replica that gave it. `replicas` may change meanwhile. Raises: Waiting where no replica
    answers."""
    for replica in sorted(r for r, state in replicas.items() if state.online):
        try:
            return replica, await question(replicas[replica].connection)
        except (grpc.RpcError, OperatorError, KeyError) as error:
            LOG.warning("replica %s/%s did not answer: %s", namespace, replica, error)
    raise Waiting("NoReplicaOnline", f"waiting for a replica of ComputeInstance {instance} to answer")
