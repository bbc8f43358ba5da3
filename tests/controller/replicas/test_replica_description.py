"""Describe: the request to a replica, and its callers."""

from __future__ import annotations

from collections.abc import Callable

from tests.controller.harness import INPUT, R1
from tests.controller.scripted import Listening, ScriptedReplica, complete, play
from tidemark_operator.fleet.running_instance import RunningInstance

__all__ = ["play"]


def test_columns_of_tables_are_told_to_requests_for_them_alone(play: Callable[..., None]) -> None:
    """A connection asks about all tables there are: a thousand of them have more columns than fit an answer."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))
        instance.replicas[R1].connection.probe_now.set()
        await replica.until(lambda: len(replica.looked_at) == 2)
        await instance.describe([(INPUT, "/data")])
        assert replica.frontiers_alone == [True, True, False]

    play(scenario)
