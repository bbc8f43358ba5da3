"""The planner's errors.

PlannerError
├── Refusal          the SQL is refused; carries the diagnostics that the user sees
└── CatalystFailed   Catalyst failed in a way that says nothing about the SQL
"""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from tidemark_protocol.messages.planning import Diagnostic


class PlannerError(Exception):
    """Root of the planner's errors."""


class Refusal(PlannerError):
    """The SQL is refused for the reasons in `diagnostics`. `object`: the id of the refused object of a plan."""

    def __init__(self, *diagnostics: Diagnostic, object: str = "") -> None:
        super().__init__("; ".join(d.message for d in diagnostics))
        self.diagnostics = diagnostics
        self.object = object

    def in_view(self, view: str) -> Refusal:
        """The same refusal, with each diagnostic naming the view."""
        return Refusal(*(replace(d, view=view) for d in self.diagnostics))


class CatalystFailed(PlannerError):
    """Catalyst raised an error that is not about the SQL; the worker process should be replaced."""


def refuse(code: str, message: str, line: int = 0, column: int = 0, word: str = "") -> NoReturn:
    """Raise a Refusal with one diagnostic. `line` and `column` count from 1; 0: unknown. `word`: the offending word of
    the SQL.
    """
    raise Refusal(Diagnostic(code, message, line=line, column=column, word=word))


def position(text: str, offset: int) -> tuple[int, int]:
    """Line and column of an offset, both from 1."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def offset_of(text: str, line: int, column: int) -> int:
    """The offset of a position."""
    start = 0
    for _ in range(line - 1):
        start = text.find("\n", start) + 1
    return start + column - 1


def unsupported(construct: str, hint: str = "", word: str = "") -> NoReturn:
    """Refuse a construct without a lowering. `construct`: the words of SQL users; `hint`: what to write instead.

    `word`: a word of the SQL by which the construct is found in the text (default: the construct itself).
    """
    refuse("UNSUPPORTED", f"{construct} is not supported" + (f": {hint}" if hint else ""), word=word or construct)
