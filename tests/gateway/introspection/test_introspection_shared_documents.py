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

    def get(self, *wanted: tuple[str, tuple[str, ...], int]) -> list[SharedDocument]:
        """The documents of sources that come at the same moment."""

        async def scenario() -> list[SharedDocument]:
            shared = SharedDocuments(context(), lambda: self.seconds, self.sleep)
            return await asyncio.gather(*(shared.get(*each) for each in wanted))

        return asyncio.run(scenario())


def test_documents_of_all_sources_take_a_share_of_the_event_loop_together(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = EventLoop(monkeypatch)
    found = loop.get(*((f"ns{n}", ("errors",), now_ms()) for n in range(30)))
    assert len({each.body for each in found}) == len(loop.made) == 30
    for before, made in zip(loop.made, loop.made[1:], strict=False):
        assert made - before >= PAUSE_FACTOR * DOCUMENT_SECONDS


def test_sources_of_a_namespace_with_the_same_relations_share_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, since = EventLoop(monkeypatch), now_ms()
    found = loop.get(*(("ns", ("errors",), since) for _ in range(30)))
    assert len(loop.made) == 1
    assert len({id(each) for each in found}) == 1
    others = loop.get(("ns", ("errors",), since), ("ns", ("steps",), since), ("other", ("errors",), since))
    assert len({each.body for each in others}) == 3


def test_a_document_of_the_tick_before_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = EventLoop(monkeypatch)
    first, second = loop.get(("ns", ("errors",), now_ms()), ("ns", ("errors",), now_ms() + 3_600_000))
    assert len(loop.made) == 2
    assert first is not second


def test_sending_counts_for_each_source_that_a_document_is_sent_to(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, since = EventLoop(monkeypatch, rows="x" * (1 << 20)), now_ms()
    found = loop.get(*(("ns", ("errors",), since) for _ in range(10)))
    sending = len(found[0].body) * shared_documents.SENDING_SECONDS_PER_BYTE
    assert len(loop.made) == 1
    assert loop.seconds >= PAUSE_FACTOR * (DOCUMENT_SECONDS + 9 * sending)


def test_documents_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_documents, "KEPT_BYTES", 1000)
    loop, since = EventLoop(monkeypatch, rows="x" * 300), now_ms()
    namespaces = ("a", "b", "c", "d", "d", "c", "a")
    loop.get(*((namespace, ("errors",), since) for namespace in namespaces))
    assert len(loop.made) == 5  # a is made twice


def test_moments_of_namespaces_are_spread_within_the_tick() -> None:
    for tick_ms in (10, 1000, 10_000, 3_600_000):
        found = {moment_in_tick(f"ns{n}", tick_ms) for n in range(200)}
        assert tick_ms / 4 - 1 < min(found) or min(found) >= 1000
        assert max(found) <= min(tick_ms * 3 / 4, 5000)
        assert len(found) > min(tick_ms / 4, 100)
