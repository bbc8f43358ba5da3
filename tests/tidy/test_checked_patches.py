"""A replacement that does not fit is refused, and one that fits is not (tests/checked_patches.py)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import pytest

from tests.checked_patches import CheckedPatches, check_replacement


class Table:
    """Stands for a class of the product: the check looks at the module that functions say they are of."""

    def copy(self, rows: int, again: bool = False, *, limit: int) -> int:
        return rows

    @staticmethod
    def of(name: str) -> str:
        return name

    @classmethod
    def made(cls, name: str) -> Table:
        return cls()


for each in (Table.copy, Table.of, vars(Table)["made"].__func__, Table):
    each.__module__ = "tidemark_replica.tables"


@pytest.mark.parametrize(
    ("replacement", "difference"),
    [
        (lambda self, *, limit: 0, "does not take 'rows', does not take 'again'"),
        (lambda self, rows, again=False: 0, "does not take 'limit'"),
        (lambda *rows: 0, "does not take 'limit'"),
        (lambda self, rows, again, *, limit: 0, "needs 'again'"),
        (lambda self, rows, again=False, more=None, *, limit, most: 0, "needs 'most'"),
    ],
)
def test_a_replacement_that_could_not_be_called_is_refused(replacement: Callable[..., int], difference: str) -> None:
    """The message names each argument, the test does not run on without the function that it meant to replace."""
    original = Table.copy
    with (
        CheckedPatches.context() as patches,
        pytest.raises(TypeError, match=rf"tidemark_replica\.tables\.copy {difference}$"),
    ):
        patches.setattr(Table, "copy", replacement)
    assert Table.copy is original


@pytest.mark.parametrize(
    "replacement",
    [
        lambda self, rows, again=False, *, limit: 0,
        lambda _, more, often=False, *, limit, most=0: 0,
        lambda *given, **named: 0,
        partial(lambda seen, rows, again=False, *, limit: 0, []),
    ],
)
def test_a_replacement_that_can_be_called_is_not_refused(replacement: Callable[..., int]) -> None:
    """Also one whose arguments by position have other names, and an object that a class does not bind."""
    check_replacement(Table, "copy", replacement)


def test_methods_of_objects_and_classes_are_compared_as_they_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object's method, and a class's own ones, are called without what they are bound to. All tests have the
    fixture that checks."""
    table = Table()
    monkeypatch.setattr(table, "copy", lambda rows, again=False, *, limit: limit)
    assert table.copy(1, limit=3) == 3
    with pytest.raises(TypeError, match="needs 'again'"):
        monkeypatch.setattr(Table(), "copy", lambda self, rows, again, *, limit: limit)
    with pytest.raises(TypeError, match="does not take 'name'"):
        monkeypatch.setattr(Table, "of", staticmethod(lambda: ""))
    monkeypatch.setattr(Table, "of", staticmethod(lambda name: name.upper()))
    with pytest.raises(TypeError, match="does not take 'name'"):
        monkeypatch.setattr(Table, "made", classmethod(lambda cls: cls()))


def test_classes_and_decorated_functions_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class is called with the arguments of its constructor; a path in a text leads to the same function."""
    module = SimpleNamespace(Table=Table)
    monkeypatch.setattr(module, "Table", lambda: None)
    monkeypatch.undo()
    with pytest.raises(TypeError, match="needs 'storage'"):
        monkeypatch.setattr(module, "Table", lambda storage: None)
    with pytest.raises(TypeError, match="needs 'name'"):
        monkeypatch.setattr("tidemark_protocol.version.release", lambda name: name)


def test_what_is_not_of_the_product_is_replaced_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own functions, and values."""
    module = SimpleNamespace(time=print, limit=3)
    monkeypatch.setattr(module, "time", lambda: 0.0)
    monkeypatch.setattr(module, "limit", 4)
    assert module.limit == 4
