"""A panic of delta-rs is a failure like any other, and does not look like one.

Rust's panics come as exceptions that are no `Exception`, as if the process were to end, and of a type that cannot be
imported. A setting with a character that no header or address may hold is enough for one. Who catches `Exception` alone
would never hear the end of what was asked.
"""

from __future__ import annotations

_NAME = "PanicException"


def is_panic(error: BaseException) -> bool:
    return type(error).__name__ == _NAME
