"""Streams on the JVM's side, as values: what `prepare.py` turns into DataFrames.

    SelectFrame ── StageFrame ─┬─ SelectFrame ── StageFrame (leaves only)
    (Catalyst)     (one Python ├─ UnionFrame ...
                    call)      └─ ...

Every frame has one partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidemark_protocol.lir import Schema
from tidemark_replica.render.mfp import Select
from tidemark_replica.render.pipeline import Pipeline
from tidemark_replica.render.pipeline import nodes_of as nodes_of_tree


@dataclass(frozen=True)
class StageFrame:
    """What a pipeline yields; `inputs` are its slots."""

    name: str
    tree: Pipeline
    inputs: tuple[Frame, ...]
    schema: Schema


@dataclass(frozen=True)
class SelectFrame:
    """A MapFilterProject by Catalyst."""

    input: Frame
    select: Select
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


Frame = StageFrame | SelectFrame | ProjectFrame | NegateFrame | UnionFrame


def stages_of(frame: Frame) -> tuple[str, ...]:
    """The names of the stages that run when the frame is computed."""
    match frame:
        case StageFrame(name, _, inputs, _):
            return (*(s for i in inputs for s in stages_of(i)), name)
        case UnionFrame(inputs, _):
            return tuple(s for i in inputs for s in stages_of(i))
        case _:
            return stages_of(frame.input)


def nodes_of(frame: Frame) -> Iterator[Pipeline]:
    """All nodes of all stages of a frame."""
    match frame:
        case StageFrame(_, tree, inputs, _):
            yield from nodes_of_tree(tree)
            for below in inputs:
                yield from nodes_of(below)
        case UnionFrame(inputs, _):
            for below in inputs:
                yield from nodes_of(below)
        case _:
            yield from nodes_of(frame.input)
