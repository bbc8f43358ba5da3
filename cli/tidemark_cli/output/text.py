"""Text that is safe to print on one line."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with control characters escaped: data must not move the terminal's cursor."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
