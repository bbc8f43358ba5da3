"""Text that is safe to print on one line."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with control characters escaped, those that turn the direction of text too: data must not move the
    terminal's cursor, nor show another order than it has."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def printable_lines(text: str) -> str:
    """The same, where the text may have several lines."""
    return "\n".join(map(printable, text.split("\n")))
