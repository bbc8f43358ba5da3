"""The checks of a continual task; `plan.py` calls them.

The task is the only export of its dataflow. It reads shards alone, since it resumes exactly where it stopped, and an
index does not outlive its replica. It watches one of them with all columns.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemark_protocol.check.scalar import refuse
from tidemark_protocol.plan.dataflow import ContinualTaskSink, DataflowDescription, SourceImport
from tidemark_protocol.plan.lir import Changes, Get, Plan


def check_task(dataflow: DataflowDescription, nodes: Iterable[Plan]) -> None:
    """Raise PlanNotAllowed unless continual tasks and Changes are used as they must be."""
    export = dataflow.continual_task
    if export is not None:
        _check_alone(dataflow)
    sink = export.sink if export is not None else None
    watches = sink.watches if isinstance(sink, ContinualTaskSink) else None
    for node in nodes:
        if isinstance(node, Changes) and not (isinstance(node.input, Get) and node.input.id == watches):
            refuse("changes are read of a collection that no continual task of the dataflow watches")
    if export is not None and watches is not None:
        source = next((s for s in dataflow.source_imports if s.id == watches), None)
        if source is None:
            refuse(f"continual task {export.id} watches {watches}, which is no shard that the dataflow imports")
        _check_whole(source)


def _check_alone(dataflow: DataflowDescription) -> None:
    if len(dataflow.export_ids) > 1:
        refuse("a continual task is the only export of its dataflow")
    if dataflow.index_imports:
        refuse("a continual task reads shards alone, no indexes")


def _check_whole(source: SourceImport) -> None:
    """Two rows that differ in a column that is not read would be no change."""
    if source.columns != tuple(range(len(source.shard.columns))):
        refuse(f"{source.id} is watched, but not all of it is imported")
