"""Recognises panics of delta-rs.

Panics of Rust code are raised as exceptions of a type that is no `Exception` and cannot be imported. A setting with a
character that no header may have is enough for one. Code that catches only `Exception` would miss them.
"""

from __future__ import annotations

_NAME = "PanicException"


def is_panic(error: BaseException) -> bool:
    """Whether the error is a panic of a Rust library."""
    return type(error).__name__ == _NAME
