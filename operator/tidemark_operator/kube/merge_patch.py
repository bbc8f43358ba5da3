"""JSON merge patches (RFC 7386), which keep fields that they do not name.

old {time: 5, at: "..."}    new {finished: true}    patch {time: null, at: null, finished: true}
"""

from __future__ import annotations

from typing import Any


def merge_patch(old: Any, new: Any) -> Any:
    """The patch that turns `old` into `new`; it has null for each field that `new` lacks."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {name: None for name in old if name not in new} | {n: merge_patch(old.get(n), v) for n, v in new.items()}
