"""`monkeypatch` that refuses a replacement which could not be called as the function of the product that it replaces.

When a function gets a parameter that a test's replacement does not take, the test passes by accident, or fails far from
the cause. So `setattr` compares the signatures and names the difference.

    original     copy(self, table, *, limit)
    refused      copy(self, *, limit)          does not take `table`
                 copy(self, table)             does not take `limit`
                 copy(self, table, more, *, limit)
                                               needs `more`
    fits         copy(self, _, *, limit)       has another name for what is given by position
                 copy(*_, **options)
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Iterator
from inspect import Parameter
from typing import Any

import pytest

POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_MISSING = object()


class CheckedPatches(pytest.MonkeyPatch):
    """Pytest's patches, with checked signatures of functions and classes of the product."""

    def setattr(self, target: Any, name: Any, value: Any = _MISSING, raising: bool = True) -> None:
        """Raises TypeError where the replacement could not be called as what it replaces."""
        if isinstance(target, str) and value is _MISSING:
            owner, _, attribute = target.rpartition(".")
            check_replacement(pkgutil.resolve_name(owner), attribute, name)
            return super().setattr(target, name, raising=raising)
        check_replacement(target, name, value)
        return super().setattr(target, name, value, raising=raising)


@pytest.fixture
def monkeypatch() -> Iterator[CheckedPatches]:
    """Replaces pytest's fixture of this name in all tests."""
    patches = CheckedPatches()
    yield patches
    patches.undo()


def check_replacement(owner: object, name: str, replacement: object) -> None:
    """Compare with what `owner` (a module, class or object) has under this name now.

    Raises:
        TypeError: `replacement` cannot be called with all arguments that the function or class of the product takes.
    """
    original = getattr(owner, name, None)
    called = _as_called(owner, name, replacement)
    if not _is_of_product(original) or not callable(called):
        return
    expected, given = _parameters(original), _parameters(called)
    if expected is None or given is None:
        return
    differences = _differences(expected, given)
    if differences:
        raise TypeError(f"the replacement of {original.__module__}.{name} {', '.join(differences)}")


def _is_of_product(original: Any) -> bool:
    """Whether it is a function, method or class of a package `tidemark`, also one behind a decorator."""
    is_code = inspect.isroutine(original) or inspect.isclass(original) or hasattr(original, "__wrapped__")
    return is_code and str(getattr(original, "__module__", "")).partition(".")[0].partition("_")[0] == "tidemark"


def _as_called(owner: object, name: str, replacement: Any) -> Any:
    """The replacement as callers of `owner` get it: a class gives functions unbound, as it gives the original."""
    if isinstance(replacement, staticmethod | classmethod):
        return replacement.__get__(None, owner if inspect.isclass(owner) else type(owner))
    is_method = inspect.isclass(owner) and inspect.isfunction(inspect.getattr_static(owner, name, None))
    if is_method and callable(replacement) and not hasattr(replacement, "__get__"):
        return _without_self(replacement)
    return replacement


def _without_self(replacement: Callable[..., Any]) -> Callable[..., Any]:
    """A `functools.partial` or another object is not bound when a class has it: its caller gives no `self`."""

    def called(_self: object, *args: Any, **named: Any) -> Any:
        return replacement(*args, **named)

    signature = inspect.signature(replacement)
    self = Parameter("_self", Parameter.POSITIONAL_ONLY)
    parameters = [self, *signature.parameters.values()]
    vars(called)["__signature__"] = signature.replace(parameters=parameters)
    return called


def _parameters(function: Any) -> list[Parameter] | None:
    """None where Python does not know the signature."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


def _differences(expected: list[Parameter], given: list[Parameter]) -> list[str]:
    """The reasons why a call that fits `expected` may not fit `given`."""
    kinds = {p.kind for p in given}
    places, given_places = ([p for p in each if p.kind in POSITIONAL] for each in (expected, given))
    names = {p.name for p in given if p.kind is not Parameter.POSITIONAL_ONLY}
    keywords = {p.name for p in expected if p.kind is Parameter.KEYWORD_ONLY}
    found = []
    if Parameter.VAR_POSITIONAL not in kinds:
        found += [f"does not take {p.name!r}" for p in places[len(given_places) :] if p.name not in names]
    if Parameter.VAR_KEYWORD not in kinds:
        found += [f"does not take {name!r}" for name in sorted(keywords - names)]
    always = len([p for p in places if p.default is Parameter.empty])
    needed = [p for p in given_places[always:] if p.default is Parameter.empty]
    needed += [p for p in given if p.kind is Parameter.KEYWORD_ONLY and p.default is Parameter.empty]
    return found + [f"needs {p.name!r}" for p in needed if p.name not in keywords]
