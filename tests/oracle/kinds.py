"""A case for each kind of operator, for tests that are about state and not about answers."""

from __future__ import annotations

from tests.oracle.cases import CASES
from tests.oracle.check import Case

_NAMES = (
    "sum by key",
    "distinct",
    "three way join",
    "three inputs that Catalyst computes",
    "join and reduce",
    "used twice",
    "left join with a residual",
    "anti join",
    "except all",
    "limit and offset",
    "top-k: heads 1+1 by 1 DESC of each a of t",
    "min and max",
    "string_agg in an order",
    "percentiles",
    "distinct aggregates of several values, and others",
    "row numbers and shifts",
    "framed sums and extremes",
    "clock: a window that moves",
    "join that fails",
    "with itself, kept once, and failures in what is joined",
    "joins of failures, kept once, null-safe and with itself",
    "groups by their key, in their state, on both sides",
    "groups of one name by their key, in their state, twice",
)


def named(name: str) -> Case:
    """The case of this name."""
    (found,) = (case for case in CASES if case.name == name)
    return found


KINDS = tuple(map(named, _NAMES))
