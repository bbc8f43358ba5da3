"""Wire names: the names of dataclasses and their fields in encoded bytes, independent of their names in Python.

    @wire_name("ColumnRef")                                   the class may be renamed; "ColumnRef" stays
    @dataclass(frozen=True)
    class ColumnReference:
        index: int                                            the wire name of a field is that of its attribute,
        of: SqlType = field(metadata={WIRE_NAME: "type"})     unless its metadata gives another

Stored plans, digests and messages hold wire names, so a wire name is never changed and never reused. A test compares
the vocabulary with tests/golden/vocabulary.json.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

WIRE_NAME = "wire_name"
"""The key in a field's metadata."""
T = TypeVar("T")


class WireField(NamedTuple):
    """A field of a dataclass. `default`: `dataclasses.MISSING` where it has none."""

    attribute: str
    wire_name: str
    default: Any


class WireEntry(NamedTuple):
    """The wire names of a dataclass and of its fields."""

    wire_name: str
    members: tuple[WireField, ...]


_ENTRIES: dict[type, WireEntry] = {}
VOCABULARY: Mapping[type, WireEntry] = MappingProxyType(_ENTRIES)
"""The dataclasses that have a wire name, of all modules that are imported."""


def wire_name(name: str) -> Callable[[type[T]], type[T]]:
    """Class decorator: the dataclass below it is encoded under this name.

    Raises:
        TypeError: the name belongs to another class already, two fields have one wire name, or a field has a default
            factory: a default must be one value, since fields that hold it are not encoded.
    """

    def register(cls: type[T]) -> type[T]:
        owner = next((known for known, entry in _ENTRIES.items() if entry.wire_name == name), None)
        if owner is not None:
            raise TypeError(f"wire name {name!r} of {cls.__qualname__} belongs to {owner.__qualname__}: choose another")
        _ENTRIES[cls] = WireEntry(name, _members(cls))
        return cls

    return register


def entry_of(cls: type) -> WireEntry:
    """The dataclass's entry in the vocabulary.

    Raises:
        TypeError: the class has no wire name.
    """
    entry = _ENTRIES.get(cls)
    if entry is None:
        raise TypeError(
            f"{cls.__module__}.{cls.__qualname__} has no wire name and cannot be encoded: "
            "decorate the dataclass with @wire_name"
        )
    return entry


def wire_name_of(cls: type) -> str:
    """The name that tags the dataclass's values; raises TypeError as `entry_of` does."""
    return entry_of(cls).wire_name


def _members(cls: Any) -> tuple[WireField, ...]:
    fields = dataclasses.fields(cls)
    members = tuple(WireField(f.name, f.metadata.get(WIRE_NAME, f.name), f.default) for f in fields)
    if len({member.wire_name for member in members}) != len(members):
        raise TypeError(f"two fields of {cls.__qualname__} have the same wire name")
    factories = [f.name for f in fields if f.default_factory is not dataclasses.MISSING]
    if factories:
        raise TypeError(f"field {factories[0]} of {cls.__qualname__} has a default factory: give it one value instead")
    return members
