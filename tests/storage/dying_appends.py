"""Ingesters that die after an append, as their process may."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tidemark_replica.storage.ingester import Ingester


@dataclass
class AppendsUntilDeath:
    """How many appends are left, of all ingesters together. The last one raises KeyboardInterrupt once it is done; none
    does after it, until the number is set again."""

    left: int


def die_after(monkeypatch: pytest.MonkeyPatch, appends: int) -> AppendsUntilDeath:
    append, until_death = Ingester._append, AppendsUntilDeath(appends)

    def append_then_die(self: Ingester, *args: Any) -> None:
        append(self, *args)
        until_death.left -= 1
        if until_death.left == 0:
            raise KeyboardInterrupt

    monkeypatch.setattr(Ingester, "_append", append_then_die)
    return until_death
