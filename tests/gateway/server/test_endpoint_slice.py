"""The Service leads to the leading operator: a failure to publish it is logged once, and loads neither log nor API
server."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import pytest

from tidemark_operator.gateway.server.endpoint_slice import (
    AGAIN_SECONDS,
    LOOK_SECONDS,
    EndpointPublisher,
    GatewayService,
)
from tidemark_operator.kube.client import ApiError, Body, Kube

SLICE = {"metadata": {"name": "gateway", "annotations": {}}}


class Answers:
    """An API server that answers these in turn: the EndpointSlice, that there is none, or an error."""

    def __init__(self, *answers: Body | ApiError | None) -> None:
        self._answers = iter(answers)

    async def get(self, *asked: Any) -> Body | None:
        answer = next(self._answers)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    async def replace(self, *asked: Any) -> None: ...


def paused(monkeypatch: pytest.MonkeyPatch, *answers: Body | ApiError | None) -> list[float]:
    """The pause after each of these."""
    pauses = list[float]()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == len(answers):
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", sleep)
    kube = cast(Kube, Answers(*answers))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(EndpointPublisher(kube, "ns", GatewayService("gateway", "pod", "10.0.0.1"), lambda: b"ca").run())
    return pauses


def test_must_a_service_that_is_gone_is_looked_for_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody deleted its EndpointSlice: that is no reason to ask every two seconds, for ever."""
    with caplog.at_level(logging.WARNING):
        pauses = paused(monkeypatch, *[None] * 6)

    assert pauses == [AGAIN_SECONDS, 4.0, 8.0, 16.0, LOOK_SECONDS, LOOK_SECONDS]
    assert len(caplog.records) == 1


def test_another_reason_is_said_and_a_success_ends_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A new reason is for somebody to see; after a success the next failure is new."""
    refused = ApiError(403, "may not")
    with caplog.at_level(logging.WARNING):
        pauses = paused(monkeypatch, None, refused, refused, SLICE, None)

    assert pauses == [AGAIN_SECONDS, 4.0, 8.0, LOOK_SECONDS, AGAIN_SECONDS]
    assert ["may not" in record.message for record in caplog.records] == [False, True, False]
