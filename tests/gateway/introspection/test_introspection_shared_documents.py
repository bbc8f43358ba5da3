"""All introspection sources of an operator together take a bounded share of its event loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.gateway.introspection.test_introspection_feed import context
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.introspection import shared_documents
from tidemark_operator.introspection.feed import moment_in_tick
from tidemark_operator.introspection.shared_documents import PAUSE_FACTOR, SharedDocument, SharedDocuments

DOCUMENT_SECONDS = 0.1


class EventLoop:
    """A clock that moves while a document is made, and by sleeping. `made`: when each document began to be made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rows: str = "") -> None:
        self.seconds, self.made, self.rows = 0.0, list[float](), rows
        monkeypatch.setattr(shared_documents, "document", self.document)

    def document(self, _: Any, namespace: str, names: tuple[str, ...]) -> dict[str, Any]:
        self.made.append(self.seconds)
        self.seconds += DOCUMENT_SECONDS
        return {"term": 1, "moment": now_ms(), "relations": dict.fromkeys(names, namespace + self.rows)}

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        await asyncio.sleep(0)

    def get(self, *wanted: tuple[str, tuple[str, ...]]) -> list[SharedDocument]:
        """The documents of sources that come at the same moment."""

        async def scenario() -> list[SharedDocument]:
            shared = SharedDocuments(context(), lambda: self.seconds, self.sleep)
            return await asyncio.gather(*(shared.make(*each) for each in wanted))

        return asyncio.run(scenario())


def test_documents_of_all_sources_take_a_share_of_the_event_loop_together(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = EventLoop(monkeypatch)
    found = loop.get(*((f"ns{n}", ("errors",)) for n in range(30)))
    assert len({each.body for each in found}) == len(loop.made) == 30
    for before, made in zip(loop.made, loop.made[1:], strict=False):
        assert made - before >= PAUSE_FACTOR * DOCUMENT_SECONDS


def test_sending_counts_for_each_document(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = EventLoop(monkeypatch, rows="x" * (1 << 20))
    found = loop.get(*((f"ns{n}", ("errors",)) for n in range(10)))
    sending = len(found[0].body) * shared_documents.SENDING_SECONDS_PER_BYTE
    assert loop.seconds >= PAUSE_FACTOR * 9 * (DOCUMENT_SECONDS + sending)


def test_moments_of_namespaces_are_spread_within_the_tick() -> None:
    for tick_ms in (10, 1000, 10_000, 3_600_000):
        found = {moment_in_tick(f"ns{n}", tick_ms) for n in range(200)}
        assert tick_ms / 4 - 1 < min(found) or min(found) >= 1000
        assert max(found) <= min(tick_ms * 3 / 4, 5000)
        assert len(found) > min(tick_ms / 4, 100)
