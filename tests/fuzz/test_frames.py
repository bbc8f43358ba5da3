"""Garbled frames harm neither side: a frame is refused as a whole, or accepted.

`make fuzz` sends more of them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.campaign import Broken, Campaign
from tests.fuzz.edges import ControllerEdge, ReplicaEdge
from tidemark_protocol.messages.commands import Hello
from tidemark_protocol.wire import protobuf
from tidemark_protocol.wire.frames import parse_frame
from tidemark_replica.events.client import Client
from tidemark_replica.events.mailbox import CommandsArrived
from tidemark_replica.server.server import Conversation

FRAMES = 15_000


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Silence the log: each refused dataflow would be a line, and there are thousands."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_must_survive_garbled_frames() -> None:
    """Whole conversations with both sides: many frames are accepted, and many are refused."""
    campaign = Campaign(1)
    campaign.run(FRAMES)

    assert min(campaign.outcomes[o] for o in ("taken", "INVALID_ARGUMENT", "FAILED_PRECONDITION")) > FRAMES / 20


@settings(max_examples=300)
@given(st.lists(st.binary(max_size=80), max_size=4))
def test_must_survive_any_bytes(frames: list[bytes]) -> None:
    """Arbitrary bytes, which hypothesis shrinks where they break something."""
    for edge in (ReplicaEdge(), ControllerEdge()):
        for data in frames:
            if edge.take(data) is not None:
                break


def _admitting_at_once(self: Conversation, data: bytes) -> None:
    """A planted mistake: the previous client is replaced before the whole frame is checked."""
    commands = self._unpacker.feed(parse_frame(data))
    for command in commands:
        self._stages.accept(command)
        if isinstance(command, Hello):
            self._client = Client(command, self.outbox)
            self._gate.admit(self._client)
    if self._client is not None:
        self._mailbox.post(CommandsArrived(self._client, tuple(commands)))


@pytest.mark.parametrize("mistake", ["half a frame is taken", "nothing is checked"])
def test_a_planted_mistake_is_seen(monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    """The campaign finds planted mistakes."""
    if mistake == "half a frame is taken":
        monkeypatch.setattr(Conversation, "accept_frame", _admitting_at_once)
    else:
        monkeypatch.setattr(protobuf, "check_command", lambda command: None)
    with pytest.raises(Broken):
        Campaign(0).run(4 * FRAMES)
