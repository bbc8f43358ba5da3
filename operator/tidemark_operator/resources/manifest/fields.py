"""Reading a nested dict with the path at hand, so that each error names its field.

`Fields({"tick": 3}, "spec").text("tick")` raises `WrongType: spec.tick: must be a string, not int 3`. A getter
called with a default gives it for an absent (or null) field; called without one, an absent field is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from tidemark_operator.resources.manifest.errors import InvalidValue, MissingField, WrongType


class Required(Enum):
    REQUIRED = "no default: the field must be there"


REQUIRED = Required.REQUIRED

_E = TypeVar("_E", bound=Enum)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Fields:
    """An object of a manifest and where it stands."""

    values: Mapping[str, Any]
    path: str

    def at(self, name: str) -> str:
        """The path of a field of this object."""
        return f"{self.path}.{name}" if self.path else name

    def has(self, name: str) -> bool:
        return self.values.get(name) is not None

    def text(self, name: str, default: str | Required = REQUIRED) -> str:
        return self._typed(name, str, "a string", default)

    def flag(self, name: str, default: bool | Required = REQUIRED) -> bool:
        return self._typed(name, bool, "true or false", default)

    def integer(self, name: str, default: int | Required = REQUIRED) -> int:
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise WrongType(self.at(name), "an integer", value)
        return value

    def number(self, name: str, default: float | Required = REQUIRED) -> float:
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise WrongType(self.at(name), "a number", value)
        return float(value)

    def choice(self, name: str, enum: type[_E], default: _E | Required = REQUIRED) -> _E:
        """One of an enumeration's values. Raises InvalidValue."""
        if default is not REQUIRED and not self.has(name):
            return default
        value = self.text(name)
        try:
            return enum(value)
        except ValueError:
            allowed = ", ".join(str(member.value) for member in enum)
            raise InvalidValue(self.at(name), f"must be one of {allowed}, not {value!r:.100}") from None

    def child(self, name: str) -> Fields:
        """The object below `name`; an absent one reads as empty, so that an error names its missing field.
        Raises WrongType."""
        value = self.values.get(name)
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            raise WrongType(self.at(name), "an object", value)
        return Fields(value, self.at(name))

    def children(self, name: str) -> Iterator[Fields]:
        """The objects of the list below `name`. Raises WrongType."""
        for i, value in enumerate(self._list(name)):
            if not isinstance(value, Mapping):
                raise WrongType(f"{self.at(name)}[{i}]", "an object", value)
            yield Fields(value, f"{self.at(name)}[{i}]")

    def texts(self, name: str) -> tuple[str, ...]:
        """The strings of the list below `name`. Raises WrongType."""
        values = self._list(name)
        for i, value in enumerate(values):
            if not isinstance(value, str):
                raise WrongType(f"{self.at(name)}[{i}]", "a string", value)
        return tuple(values)

    def _list(self, name: str) -> list[Any]:
        value = self.values.get(name)
        if value is None:
            return []
        if not isinstance(value, list | tuple):
            raise WrongType(self.at(name), "a list", value)
        return list(value)

    def _typed(self, name: str, kind: type[_T], called: str, default: _T | Required) -> _T:
        value = self._get(name, default)
        if not isinstance(value, kind):
            raise WrongType(self.at(name), called, value)
        return value

    def _get(self, name: str, default: object) -> object:
        value = self.values.get(name)
        if value is not None:
            return value
        if default is REQUIRED:
            raise MissingField(self.at(name))
        return default
