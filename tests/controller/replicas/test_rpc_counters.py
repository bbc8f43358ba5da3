"""Counters of the connections to an instance's replicas."""

from __future__ import annotations

from collections.abc import Callable

from tests.controller.harness import INDEX, at
from tests.controller.scripted import Listening, ScriptedReplica, complete, play
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_protocol.messages.responses import Frontiers
from tidemark_protocol.wire.frames import pack_responses

__all__ = ["play"]


def test_bytes_messages_and_connect_times_are_counted(play: Callable[..., None]) -> None:
    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))
        traffic = instance.traffic
        first, waited = traffic.sent_bytes, traffic.connect_seconds
        assert (first > 0, waited > 0, traffic.received_bytes) == (True, True, 0)

        reported = Frontiers(INDEX, at(480), at(360), at(360))
        replica.say(reported)
        await replica.until(lambda: traffic.received_bytes > 0)
        assert traffic.received_bytes == sum(frame.ByteSize() for frame in pack_responses([reported]))

        replica.hang_up()
        await replica.until(lambda: len(replica.streams) == 2 and complete(replica.streams[1]))
        assert traffic.sent_bytes > first
        assert traffic.connect_seconds > waited

    play(scenario)
