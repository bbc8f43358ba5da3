"""What can go wrong while planning.

PlannerError
├── Refusal             the SQL is refused; carries the diagnostics that the user sees
│   └── NeedsOperators  as a peek; it may be a dataflow
└── CatalystFailed      the JVM failed in a way that is no answer about the SQL
"""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from tidemark_protocol.messages.planning import Diagnostic


class PlannerError(Exception):
    """Root of the planner's errors."""


class Refusal(PlannerError):
    """The SQL is refused, for these reasons."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        super().__init__("; ".join(d.message for d in diagnostics))
        self.diagnostics = diagnostics

    def in_view(self, view: str) -> Refusal:
        return Refusal(*(replace(d, view=view) for d in self.diagnostics))


class NeedsOperators(Refusal):
    """The query cannot be answered from the rows of one relation alone."""


class CatalystFailed(PlannerError):
    """Catalyst raised something that is not about the SQL; the process should be replaced."""


def refuse(code: str, message: str, line: int = 0, column: int = 0, word: str = "") -> NoReturn:
    """Raise a Refusal with one diagnostic."""
    raise Refusal(Diagnostic(code, message, line=line, column=column, word=word))


def unsupported(construct: str, hint: str = "") -> NoReturn:
    """Refuse a construct that has no lowering (yet), in the user's words."""
    refuse("UNSUPPORTED", f"{construct} is not supported" + (f": {hint}" if hint else ""), word=construct)
