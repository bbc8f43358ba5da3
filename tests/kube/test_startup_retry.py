"""A start while the API server is overloaded: reads are retried, replicas adopted, missing objects created."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidemark_operator import main
from tidemark_operator.errors import OperatorError
from tidemark_operator.handlers.default_instance import DefaultInstance
from tidemark_operator.kube import startup_retry
from tidemark_operator.kube.client import ApiError, Conflict, Invalid


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
    monkeypatch.setattr(startup_retry, "RETRY_SECONDS", 0)
    there = cast(Any, None)
    options = cast(Any, SimpleNamespace())
    context = asyncio.run(main._context(there, options, there, (there, there), "me"))
    assert cast(Any, context.orchestrator) is orchestrator


@pytest.mark.parametrize("status", [0, 429, 500, 503])
def test_an_api_server_that_stumbles_at_a_takeover_is_asked_again(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    """Though not without an end."""
    stumbling = Stumbling(status, 3)
    take_over(monkeypatch, stumbling)

    assert stumbling.left == 0
    with pytest.raises(ApiError):
        take_over(monkeypatch, Stumbling(status, startup_retry.TRIES))


def test_an_api_server_that_refuses_at_a_takeover_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rights are missing: somebody must see it."""
    refusing = Stumbling(403, 2)
    with pytest.raises(ApiError):
        take_over(monkeypatch, refusing)

    assert refusing.left == 1


class Instances:
    """An API server without the instance, that takes what is made as often as not: what `fails` says comes first."""

    def __init__(self, *fails: ApiError, made_all_the_same: bool = False) -> None:
        self.fails, self.made_all_the_same = list(fails), made_all_the_same
        self.made: list[Any] = []

    async def get(self, *_: object) -> Any:
        return self.made[0] if self.made else None

    async def create(self, resource: object, namespace: str, body: Any) -> None:
        failure = self.fails.pop(0) if self.fails else None
        if failure is None or self.made_all_the_same:
            self.made.append(body)
        if failure is not None:
            raise failure


def make_default(monkeypatch: pytest.MonkeyPatch, instances: Instances) -> None:
    monkeypatch.setattr(startup_retry, "RETRY_SECONDS", 0)
    default = DefaultInstance.parse("ns/default", "/data")
    assert default is not None
    asyncio.run(default.ensure(cast(Any, instances)))


@pytest.mark.parametrize("lost", [False, True], ids=["refused", "answer lost"])
def test_a_default_instance_is_made_once_whatever_the_api_server_says(
    monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """Somebody else may have made it in between, too."""
    instances = Instances(ApiError(503, "no"), Conflict(409, "it exists"), made_all_the_same=lost)
    make_default(monkeypatch, instances)

    assert [body["spec"] for body in instances.made] == [{"storage": {"location": "/data"}}]


def test_a_default_instance_that_is_refused_ends_the_operator_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the option named that asked for it."""
    instances = Instances(Invalid(422, "no such location"), ApiError(503, "no"))
    with pytest.raises(OperatorError, match="--default-instance ns/default cannot be created: no such location"):
        make_default(monkeypatch, instances)

    assert len(instances.fails) == 1
