"""HIR that gives rows a name: read more than once, or by themselves. Part of `nodes.py`, which has the whole
picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.plan.lir import Schema

if TYPE_CHECKING:
    from tidemark_planner.hir.nodes import Hir


@dataclass(frozen=True)
class Let:
    """`value`, computed once, for the Locals of this name in `body`; made by expand, after all rules."""

    name: LocalId
    value: Hir
    body: Hir

    @property
    def schema(self) -> Schema:
        return self.body.schema


@dataclass(frozen=True)
class Local:
    name: LocalId
    schema: Schema
    keys: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Binding:
    """A name of a LetRec and its rows; after `limit` iterations it is in error, or what there is, is its result."""

    id: GlobalId
    value: Hir
    limit: int | None = None
    returns: bool = False


@dataclass(frozen=True)
class LetRec:
    """The rows of `body`, which reads the bindings, as they are once they have stopped changing one another."""

    bindings: tuple[Binding, ...]
    body: Hir

    @property
    def schema(self) -> Schema:
        return self.body.schema
