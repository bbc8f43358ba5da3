"""What a plan may hold that older replicas do not understand, in words.

    plan ──► needs refresh      a replica that says `refresh` as it is described is told of the plan;
                                no other is: it could not read the bytes, and would end its connection

What comes into plans has a line here, by the wire name of the class or the field. A field that holds its default
is not written, so such a plan is read by everybody. A replica says all the words that there are where it is built.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from tidemark_protocol.types import SqlType
from tidemark_protocol.vocabulary import entry_of

FEATURES = {"MaterializedViewSink.refresh": "refresh"}
"""By `Class`, or `Class.field`. What is inside of it needs no line of its own."""
SUPPORTED_FEATURES = tuple(sorted(set(FEATURES.values())))


def required_features(value: Any) -> frozenset[str]:
    """The words without which a tree of the protocol's dataclasses is not understood."""
    words: set[str] = set()
    todo = [value]
    while todo:
        each = todo.pop()
        if isinstance(each, tuple):
            todo += each
        elif not isinstance(each, SqlType) and dataclasses.is_dataclass(each):
            cls: Any = type(each)
            own, fields = _members(cls)
            words |= own
            for name, default, word in fields:
                held = getattr(each, name)
                if held is not default and held != default:
                    words |= word
                    todo.append(held)
    return frozenset(words)


@functools.cache
def _members(cls: Any) -> tuple[frozenset[str], tuple[tuple[str, Any, frozenset[str]], ...]]:
    """The word of a class, and of its fields with their defaults."""
    name, members = entry_of(cls)
    named = ((member.attribute, member.default, _word(f"{name}.{member.wire_name}")) for member in members)
    return _word(name), tuple(named)


def _word(member: str) -> frozenset[str]:
    return frozenset({FEATURES[member]} if member in FEATURES else ())
