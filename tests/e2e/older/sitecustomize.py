"""Python reads this as a process starts whose PYTHONPATH has this folder: the replica `r1` becomes one of an image that
is older than `refresh`. It says no word of it, and takes a plan that has it for none."""

from __future__ import annotations

import sys
from typing import Any


def become_older() -> None:
    """Before anything else of the replica is imported."""
    from tidemark_protocol.plan import codec, plan_features
    from tidemark_protocol.vocabulary import wire_name_of

    known = codec._fields

    def fields(cls: Any) -> dict[str, tuple[str, Any]]:
        return {n: f for n, f in known(cls).items() if f"{wire_name_of(cls)}.{n}" not in plan_features.FEATURES}

    codec._fields = fields  # type: ignore[assignment]
    plan_features.SUPPORTED_FEATURES = ()


if "tidemark_replica" in sys.orig_argv and any(word.endswith("/r1") for word in sys.orig_argv):
    become_older()
