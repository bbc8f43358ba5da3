"""Frames: the streams on the JVM's side, as values that `execution/prepare.py` turns into DataFrames.

    SelectFrame ── StageFrame ─┬─ SelectFrame ── StageFrame (leaves only)
    (Catalyst)     (one Python ├─ UnionFrame ...
                    call)      └─ ...

In the one-task shape every frame has one partition. In the exchanged shape (`exchanged_plan.py`) a frame has one
partition per task, an ExchangeFrame moves rows between tasks, and there are no UnionFrames.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidemark_protocol.plan.lir import Schema
from tidemark_replica.render.expressions.mfp import MfpSelect
from tidemark_replica.render.plan.pipeline import Pipeline
from tidemark_replica.render.plan.pipeline import nodes_of as nodes_of_tree


@dataclass(frozen=True)
class StageFrame:
    """The output of a pipeline; `inputs` are the frames of its JvmInputs."""

    name: str
    tree: Pipeline
    inputs: tuple[Frame, ...]
    schema: Schema


@dataclass(frozen=True)
class SelectFrame:
    """A MapFilterProject in Catalyst."""

    input: Frame
    select: MfpSelect
    schema: Schema


@dataclass(frozen=True)
class ProjectFrame:
    input: Frame
    columns: tuple[int, ...]
    schema: Schema


@dataclass(frozen=True)
class NegateFrame:
    input: Frame

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True)
class UnionFrame:
    inputs: tuple[Frame, ...]
    schema: Schema


@dataclass(frozen=True)
class ExchangeFrame:
    """Streams that are distributed to the tasks of the next stage as its inputs; each ends with an Exchange."""

    inputs: tuple[StageFrame, ...]
    schema: Schema = ()


Frame = StageFrame | SelectFrame | ProjectFrame | NegateFrame | UnionFrame | ExchangeFrame


def pipelines_of(frame: StageFrame) -> tuple[tuple[str, ...], ...]:
    """The names of the stages that compute a frame, grouped by the tasks that they share."""
    own, others = _pipeline(frame)
    return (*others, own)


def _pipeline(frame: Frame) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """(stages in the tasks that compute the frame, groups of stages in earlier tasks)."""
    match frame:
        case ExchangeFrame(inputs, _):
            return (), tuple(p for i in inputs for p in pipelines_of(i))
        case StageFrame(name, _, inputs, _):
            below = [_pipeline(i) for i in inputs]
            return (*(s for own, _ in below for s in own), name), tuple(p for _, others in below for p in others)
        case UnionFrame(inputs, _):
            below = [_pipeline(i) for i in inputs]
            return tuple(s for own, _ in below for s in own), tuple(p for _, others in below for p in others)
        case _:
            return _pipeline(frame.input)


def inputs_of(frame: Frame) -> tuple[Frame, ...]:
    """The frames directly below a frame."""
    match frame:
        case StageFrame(_, _, inputs, _) | UnionFrame(inputs, _) | ExchangeFrame(inputs, _):
            return inputs
        case _:
            return (frame.input,)


def nodes_of(frame: Frame) -> Iterator[Pipeline]:
    """Yield all pipeline nodes of all stages of a frame."""
    if isinstance(frame, StageFrame):
        yield from nodes_of_tree(frame.tree)
    for below in inputs_of(frame):
        yield from nodes_of(below)
