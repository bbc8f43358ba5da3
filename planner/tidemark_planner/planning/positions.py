"""Positions of refusals in the user's text.

    own line and column   ──else──►  the first place of the word that it names   ──else──►  where the statement begins

Spark's analysis gives many reasons without a place. The first place of the word is where people look first; the
beginning of the statement says at least which statement is meant.
"""

from __future__ import annotations

import re
from dataclasses import replace

from tidemark_planner.errors import Refusal, position

# Spaces and comments before the first word.
_BLANK = re.compile(r"(?:\s+|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)


def with_positions(refusal: Refusal, sql: str) -> Refusal:
    """The refusal with a position in `sql` for every diagnostic, from 1."""
    placed = []
    for diagnostic in refusal.diagnostics:
        line, column = diagnostic.line, diagnostic.column
        if not line:
            line, column = _position_of(sql, diagnostic.word)
        placed.append(replace(diagnostic, line=line, column=column))
    return Refusal(*placed)


def _position_of(sql: str, word: str) -> tuple[int, int]:
    """Line and column of the first place of a word, or of the statement's beginning."""
    start = _place_of(sql, word)
    if start is None:
        blank = _BLANK.match(sql)
        start = blank.end() if blank and blank.end() < len(sql) else 0
    return position(sql, start)


def _place_of(sql: str, word: str) -> int | None:
    """The offset of the word that stands for itself; else of its letters, where they occur once."""
    if not word:
        return None
    whole = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", sql, re.IGNORECASE)
    if whole is not None:
        return whole.start()
    letters = list(re.finditer(re.escape(word), sql, re.IGNORECASE))
    return letters[0].start() if len(letters) == 1 else None
