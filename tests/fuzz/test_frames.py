"""Garbled frames harm neither side: refused with a status and nothing of them done, or understood.

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
from tidemark_replica.events.client import Client
from tidemark_replica.events.mailbox import CommandsArrived
from tidemark_replica.server.server import Conversation, parse_frame

FRAMES = 15_000


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """A dataflow that is refused is a line in the log: here, thousands."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_must_survive_garbled_frames() -> None:
    """Both sides, whole conversations, every kind of message; many get through, and many do not."""
    campaign = Campaign(1)
    campaign.run(FRAMES)

    assert min(campaign.outcomes[o] for o in ("taken", "INVALID_ARGUMENT", "FAILED_PRECONDITION")) > FRAMES / 20


@settings(max_examples=300)
@given(st.lists(st.binary(max_size=80), max_size=4))
def test_must_survive_any_bytes(frames: list[bytes]) -> None:
    """Bytes that hypothesis draws, and makes smaller where they break something."""
    for edge in (ReplicaEdge(), ControllerEdge()):
        for data in frames:
            if edge.take(data) is not None:
                break


def _admitting_at_once(self: Conversation, data: bytes) -> None:
    """A mistake: the client before is replaced while the rest of the frame may still be refused."""
    commands = self._unpacker.feed(parse_frame(data))
    for command in commands:
        self._stages.accept(command)
        if isinstance(command, Hello):
            self._client = Client(command, self.outbox)
            self._gate.admit(command, self._client)
    if self._client is not None:
        self._mailbox.post(CommandsArrived(self._client, tuple(commands)))


@pytest.mark.parametrize("mistake", ["half a frame is taken", "nothing is checked"])
def test_a_planted_mistake_is_seen(monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    """Else the frames would be too harmless."""
    if mistake == "half a frame is taken":
        monkeypatch.setattr(Conversation, "accept_frame", _admitting_at_once)
    else:
        monkeypatch.setattr(protobuf, "check_command", lambda command: None)
    with pytest.raises(Broken):
        Campaign(0).run(4 * FRAMES)
