"""Shards that are numbers, in the model: durable, watched and compacted, without contents."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ShardId, WriterTerm
from tidemark_protocol.messages.commands import AllowShardCompaction, StorageCommand
from tidemark_protocol.messages.responses import DescribedShard, Response, ShardFrontiers


class Violation(AssertionError):
    """Somebody read what was not there any more, or not there yet."""


@dataclass
class SimShard:
    """Durable, shared by all replicas. `allowed`: the newest term that anybody may write under, where it is known: a
    later revision must not before it takes over."""

    upper: int = 0
    since: int = 0
    term: WriterTerm = WriterTerm(0)
    allowed: WriterTerm | None = None


Shards = dict[ShardId, SimShard]


class Watch:
    """Tells the client how far the shards are that somebody here follows."""

    def __init__(self, shards: Shards, send: Callable[[Response], None]) -> None:
        self._shards, self._send = shards, send
        self._followed: dict[ShardId, set[Hashable]] = {}
        self._told: dict[ShardId, tuple[int, int]] = {}

    def follow(self, id: ShardId, location: str, owner: Hashable) -> None:
        self._followed.setdefault(id, set()).add(owner)

    def unfollow(self, owner: Hashable) -> None:
        for owners in self._followed.values():
            owners.discard(owner)

    def state(self, id: ShardId) -> DescribedShard:
        shard = self._shards[id]
        return DescribedShard(id, True, Frontier.decode(shard.upper), Frontier.at(shard.since), shard.term)

    def report_again(self) -> None:
        self._told.clear()

    def maintain(self) -> None:
        for id, owners in self._followed.items():
            shard = self._shards[id]
            if owners and self._told.get(id) != (shard.upper, shard.since):
                self._told[id] = (shard.upper, shard.since)
                self._send(ShardFrontiers(id, Frontier.decode(shard.upper), Frontier.at(shard.since)))


class Storage:
    """Compacts shards as told, and tells what became of it."""

    def __init__(self, shards: Shards, send: Callable[[Response], None]) -> None:
        self._shards, self._send = shards, send

    def apply(self, command: StorageCommand) -> None:
        assert isinstance(command, AllowShardCompaction)
        shard, since = self._shards[command.id], command.frontier.time
        if since is not None:
            shard.since = max(shard.since, min(since, shard.upper - 1))
        self._send(ShardFrontiers(command.id, Frontier.decode(shard.upper), Frontier.at(shard.since)))

    def keep_only(self, wanted: list[GlobalId]) -> None:
        assert not wanted

    def maintain(self) -> None:
        pass
