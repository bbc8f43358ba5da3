"""Inputs that are read more than once: bound to a name by a Let, unless recomputing them is free."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from tidemark_planner.hir.keys import unique_keys
from tidemark_planner.hir.nodes import Filter, Hir, Let, Local, Project, Scan, Union, Values, expressions_of, inputs_of
from tidemark_protocol.functions.registry import is_fallible, reads_clock
from tidemark_protocol.ids import LocalId


class NameSupply:
    """Names that are unique within one object."""

    def __init__(self) -> None:
        self._numbers = count()

    def fresh(self) -> LocalId:
        return LocalId(f"shared{next(self._numbers)}")


def bind_once(value: Hir, names: NameSupply, body: Callable[[Hir], Hir]) -> Hir:
    """`body` over a node with the rows of `value` that may be read several times."""
    if is_free_to_recompute(value):
        return body(value)
    local = Local(names.fresh(), value.schema, unique_keys(value))
    return Let(local.name, value, body(local))


def is_free_to_recompute(node: Hir) -> bool:
    """Whether computing the node twice keeps no state twice (filters by the clock keep some) and evaluates nothing that
    can fail.
    """
    if not isinstance(node, Scan | Values | Local | Filter | Project | Union):
        return False
    if any(is_fallible(e) or reads_clock(e) for e in expressions_of(node)):
        return False
    return all(map(is_free_to_recompute, inputs_of(node)))
