"""Finished tables in the model: the operator's decisions, and the end of a driver's work."""

from __future__ import annotations

from collections.abc import Iterable

from tidemark_operator.controller.instance import Instance
from tidemark_operator.controller.replicas.excluded_dataflows import tables_of
from tidemark_protocol.frontier import EMPTY_SENTINEL
from tidemark_protocol.plan.dataflow import DataflowDescription


def is_sealed(instance: Instance, description: DataflowDescription, now_ms: int) -> bool:
    """Whether the dataflow is sealed, as the installer decides it, by the clock of the model."""
    found = [instance.shards.frontiers(shard) for shard in tables_of(description)]
    finished = bool(found) and all(known is not None and known.upper.is_empty for known in found)
    return finished and instance.dataflows.may_end(description, now_ms)


def may_be_sealed(instance: Instance, description: DataflowDescription) -> bool:
    """Not all is known of its tables."""
    found = [instance.shards.frontiers(shard) for shard in tables_of(description)]
    return bool(found) and all(known is None or known.upper.is_empty for known in found)


def all_finished(uppers: Iterable[int]) -> bool:
    """Whether all tables of a dataflow that exports nothing else are finished."""
    found = list(uppers)
    return bool(found) and min(found) == EMPTY_SENTINEL


def end(description: DataflowDescription, upper: int) -> int:
    """The upper of the dataflow for these uppers of its inputs."""
    return EMPTY_SENTINEL if description.until is not None and description.until <= upper else upper


def is_over(description: DataflowDescription, reached: int) -> bool:
    """Whether all that it exports is tables, which are finished: nobody needs it, and nothing is kept for it."""
    return reached == EMPTY_SENTINEL and bool(tables_of(description))
