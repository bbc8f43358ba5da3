"""The state of a plan, from the planner's diagnostics: waiting for inputs, or refused.

UNRESOLVED_RELATION alone      WaitingForInputs: the missing input may be applied later
anything else                  PlanRefused: `line 3, column 14, at "nme": ...`; reason UnresolvedColumn
"""

from __future__ import annotations

from tidemark_operator.resources.conditions.dataflow import PlanRefused, WaitingForInputs
from tidemark_protocol.messages.planning import Diagnostic, Refused

_MISSING = "UNRESOLVED_RELATION"


def classify_refusal(refused: Refused) -> WaitingForInputs | PlanRefused:
    """The refusal of a Dataflow by the planner, for its conditions. The first diagnostic gives the reason."""
    if not refused.diagnostics:
        return PlanRefused("Internal", "the planner refused the SQL without a reason: see the planner's log")
    faults = [diagnostic for diagnostic in refused.diagnostics if diagnostic.code != _MISSING]
    if not faults:
        missing = dict.fromkeys(_missing(diagnostic) for diagnostic in refused.diagnostics)
        return WaitingForInputs(tuple(missing))
    return PlanRefused(reason(faults[0].code), "; ".join(describe(diagnostic) for diagnostic in faults))


def reason(code: str) -> str:
    """The CamelCase reason of a diagnostic's code: UNRESOLVED_COLUMN becomes UnresolvedColumn."""
    return "".join(word.capitalize() for word in code.split("_"))


def describe(diagnostic: Diagnostic) -> str:
    """A diagnostic as text: position, offending word, message."""
    where = [f"view {diagnostic.view}"] if diagnostic.view else []
    if diagnostic.line:
        where += [f"line {diagnostic.line}", f"column {diagnostic.column}"]
    if diagnostic.word:
        where.append(f'at "{diagnostic.word}"')
    return f"{', '.join(where)}: {diagnostic.message}" if where else diagnostic.message


def _missing(diagnostic: Diagnostic) -> str:
    """The missing input as text. `tpch.lineitem` could be a table or an export, so the text names both kinds."""
    parts = diagnostic.relation
    if len(parts) < 2:
        return f"Dataflow {'.'.join(parts)} ({describe(diagnostic)})"
    return f"DataSource or Dataflow {parts[0]} with {parts[1]} ({describe(diagnostic)})"
