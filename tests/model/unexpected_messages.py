"""Messages that no correct peer sends: garbage, and messages of an old epoch."""

from __future__ import annotations

import random

from tests.fuzz.garbler import Garbler
from tests.model.replica import CONFIG, TERM
from tests.protocol.test_wire import COMMANDS, RESPONSES
from tidemark_protocol.errors import ProtocolError
from tidemark_protocol.ids import Epoch
from tidemark_protocol.messages.commands import CreateInstance, Hello, InitializationComplete
from tidemark_protocol.messages.responses import Response
from tidemark_protocol.wire import protobuf
from tidemark_protocol.wire.frames import Unpacker, pack_commands, parse_frame

FIRST_CONNECTION = 1_000
"""Ours count from here: those before are gone."""
_COMMANDS = [protobuf.command_to_proto(c) for c in COMMANDS]
_RESPONSES = [protobuf.response_to_proto(r) for r in RESPONSES]


def commands(seed: int) -> list[bytes]:
    """The frames of a connection to a replica: an older client's, or none that begins as it should; then garbage."""
    chance = random.Random(seed)
    greeting = [Hello("older", Epoch(TERM, FIRST_CONNECTION - 1)), CreateInstance(CONFIG), InitializationComplete()]
    begins = [frame.SerializeToString() for frame in pack_commands(greeting)] if chance.random() < 0.5 else []
    garbler = Garbler(chance, _COMMANDS, "commands")
    return [*begins, *(garbler.frame() for _ in range(4))]


def responses(seed: int) -> tuple[list[Response], bool]:
    """The responses that a controller understands of garbage, and whether the connection goes on."""
    garbler, unpacker = Garbler(random.Random(seed), _RESPONSES, "responses"), Unpacker.of_responses()
    understood: list[Response] = []
    try:
        for _ in range(3):
            understood += unpacker.feed(parse_frame(garbler.frame()))
    except ProtocolError:
        return understood, False
    return understood, True
