"""The reason why a text of another dialect has no translation."""

from __future__ import annotations

from typing import Any


class NotTranslated(Exception):
    """Text that sqlglot cannot read, or that is not known to mean anything in Spark. `node`: the part of sqlglot's tree
    that is the reason; None: it is not known."""

    def __init__(self, message: str, node: Any = None) -> None:
        super().__init__(message)
        self.node = node
