"""Ingesters that die at an append, as their process may."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tidemark_replica.storage.ingester import Ingester


@dataclass
class MomentsUntilDeath:
    """The number of moments that are left, of all ingesters together. The last one raises KeyboardInterrupt; none does
    after it, until the number is set again."""

    left: int

    def pass_one(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def die_after(monkeypatch: pytest.MonkeyPatch, appends: int) -> MomentsUntilDeath:
    """The moments are those after appends."""
    append, until_death = Ingester._append, MomentsUntilDeath(appends)

    def append_then_die(self: Ingester, *args: Any) -> None:
        append(self, *args)
        until_death.pass_one()

    monkeypatch.setattr(Ingester, "_append", append_then_die)
    return until_death


def die_around(monkeypatch: pytest.MonkeyPatch, moments: int) -> MomentsUntilDeath:
    """Each append has a moment before it and one after it."""
    append, until_death = Ingester._append, MomentsUntilDeath(moments)

    def append_or_die(self: Ingester, *args: Any) -> None:
        until_death.pass_one()
        append(self, *args)
        until_death.pass_one()

    monkeypatch.setattr(Ingester, "_append", append_or_die)
    return until_death
