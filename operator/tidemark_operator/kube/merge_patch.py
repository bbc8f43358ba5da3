"""JSON merge patches, which keep what they do not name.

old {time: 5, at: "..."}    new {finished: true}    patch {time: null, at: null, finished: true}
"""

from __future__ import annotations

from typing import Any


def merge_patch(old: Any, new: Any) -> Any:
    """What makes `new` of `old` when it is merged into it; an object is named with what it has no more."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {name: None for name in old if name not in new} | {n: merge_patch(old.get(n), v) for n, v in new.items()}
