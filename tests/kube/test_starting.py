"""A takeover while the API server is overloaded: what runs is asked for again, and adopted."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from tidemark_operator import main
from tidemark_operator.kube import starting
from tidemark_operator.kube.client import ApiError


class Stumbling:
    """An orchestrator whose look at what runs fails, so many times."""

    def __init__(self, status: int, times: int) -> None:
        self.status, self.left = status, times

    async def adopt(self) -> None:
        if self.left:
            self.left -= 1
            raise ApiError(self.status, "no")


def take_over(monkeypatch: pytest.MonkeyPatch, orchestrator: Stumbling) -> None:
    async def made(*_: object) -> tuple[Any, ...]:
        return orchestrator, None, None

    monkeypatch.setattr(main, "_orchestrator", made)
    monkeypatch.setattr(starting, "AGAIN_SECONDS", 0)
    there = cast(Any, None)
    world = asyncio.run(main._world(there, there, there, there, "me"))
    assert cast(Any, world.orchestrator) is orchestrator


@pytest.mark.parametrize("status", [0, 429, 500, 503])
def test_an_api_server_that_stumbles_at_a_takeover_is_asked_again(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    """Though not without an end."""
    stumbling = Stumbling(status, 3)
    take_over(monkeypatch, stumbling)

    assert stumbling.left == 0
    with pytest.raises(ApiError):
        take_over(monkeypatch, Stumbling(status, starting.TRIES))


def test_an_api_server_that_refuses_at_a_takeover_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rights are missing: somebody must see it."""
    refusing = Stumbling(403, 2)
    with pytest.raises(ApiError):
        take_over(monkeypatch, refusing)

    assert refusing.left == 1
