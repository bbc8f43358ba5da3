"""The planner's diagnostics as a standing of the plan: waited for, or refused for good.

UNRESOLVED_RELATION alone      WaitingForInputs: what is missing may be applied later
anything else                  PlanRefused: `line 3, column 14, at "nme": ...`; reason UnresolvedColumn
"""

from __future__ import annotations

from tidemark_operator.resources.conditions.dataflow import PlanRefused, WaitingForInputs
from tidemark_protocol.messages.planning import Diagnostic, Refused

_MISSING = "UNRESOLVED_RELATION"


def standing(refused: Refused) -> WaitingForInputs | PlanRefused:
    """What to say of a Dataflow that the planner refused. The first diagnostic gives the reason."""
    if not refused.diagnostics:
        return PlanRefused("Internal", "the planner refused without saying why")
    faults = [diagnostic for diagnostic in refused.diagnostics if diagnostic.code != _MISSING]
    if not faults:
        missing = dict.fromkeys(_missing(diagnostic) for diagnostic in refused.diagnostics)
        return WaitingForInputs(tuple(missing))
    return PlanRefused(reason(faults[0].code), "; ".join(describe(diagnostic) for diagnostic in faults))


def reason(code: str) -> str:
    """UNRESOLVED_COLUMN is UnresolvedColumn: conditions have reasons in CamelCase."""
    return "".join(word.capitalize() for word in code.split("_"))


def describe(diagnostic: Diagnostic) -> str:
    """Where, what word, and what about it."""
    where = [f"view {diagnostic.view}"] if diagnostic.view else []
    if diagnostic.line:
        where += [f"line {diagnostic.line}", f"column {diagnostic.column}"]
    if diagnostic.word:
        where.append(f'at "{diagnostic.word}"')
    return f"{', '.join(where)}: {diagnostic.message}" if where else diagnostic.message


def _missing(diagnostic: Diagnostic) -> str:
    """`tpch.lineitem` could be a table or an export: both kinds are named."""
    parts = diagnostic.relation
    if len(parts) < 2:
        return f"Dataflow {'.'.join(parts)} ({describe(diagnostic)})"
    return f"DataSource or Dataflow {parts[0]} with {parts[1]} ({describe(diagnostic)})"
