"""A merge patch that replaces an object sets removed fields to null."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark_operator.kube.merge_patch import merge_patch

OBJECTS = st.dictionaries(
    st.sampled_from("abc"),
    st.recursive(st.integers(0, 2), lambda inner: st.dictionaries(st.sampled_from("abc"), inner), max_leaves=6),
)


def merged(old: Any, patch: Any) -> Any:
    """RFC 7396, as the API server does it."""
    if not isinstance(patch, dict):
        return patch
    kept = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            kept.pop(name, None)
        else:
            kept[name] = merged(kept.get(name), value)
    return kept


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        ({"time": 5, "at": "x"}, {"finished": True}, {"time": None, "at": None, "finished": True}),
        (None, {"finished": True}, {"finished": True}),
        ([{"a": 1}], [{"b": 1}], [{"b": 1}]),
        ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": None, "c": 2}}),
    ],
)
def test_removed_fields_are_set_to_null(old: Any, new: Any, patch: Any) -> None:
    """A frontier that becomes finished kept its time, and the API server refused the status for ever."""
    assert merge_patch(old, new) == patch
    assert merged(old, patch) == new


@given(OBJECTS, OBJECTS)
def test_merging_gives_the_new(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Whatever there was."""
    assert merged(old, merge_patch(old, new)) == new
