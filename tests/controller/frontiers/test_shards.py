"""Shards' frontiers and holds: since is lowered only as far as everybody allows, and not too often."""

from __future__ import annotations

import pytest

from tests.controller.harness import EMPTY, NOW, at
from tidemark_operator.controller.frontiers.shards import COMPACTION_INTERVAL_MS, ShardBook
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import ShardId, WriterTerm
from tidemark_protocol.messages.responses import DescribedShard

S = ShardId("s")


def book(upper: Frontier, since: int = 0, lag: int = 100) -> ShardBook:
    shards = ShardBook()
    shards.register(S, "file:///s", lag)
    shards.observe(S, upper, at(since))
    return shards


@pytest.mark.parametrize(
    ("upper", "holds", "allowed"),
    [
        pytest.param(at(1000), {}, at(900), id="the read policy alone"),
        pytest.param(at(1000), {"a": at(950)}, at(900), id="a hold that asks for less than the policy"),
        pytest.param(at(1000), {"a": at(300), "b": at(500)}, at(300), id="the least of two holds"),
        pytest.param(at(50), {}, at(0), id="younger than the lag"),
        pytest.param(EMPTY, {}, at(0), id="finished: stays as it is"),
    ],
)
def test_since_follows_policy_and_holds(upper: Frontier, holds: dict[str, Frontier], allowed: Frontier) -> None:
    """The least of what the policy and every holder allow."""
    shards = book(upper)
    for holder, frontier in holds.items():
        shards.hold(S, holder, frontier)

    shard = shards.get(S)
    assert shard is not None
    assert shard.allowed_since(NOW) == allowed


AHEAD = NOW + 3_600_000
NEVER = 1 << 62


def test_compaction_is_asked_for_at_most_every_ten_seconds() -> None:
    """However fast the upper moves; and not again when there is nothing new."""
    shards = book(at(1000))

    assert [c.frontier for c in shards.due_compactions(NOW)] == [at(900)]
    shards.observe(S, at(2000), at(0))
    assert shards.due_compactions(NOW + COMPACTION_INTERVAL_MS - 1) == []
    assert [c.frontier for c in shards.due_compactions(NOW + COMPACTION_INTERVAL_MS)] == [at(1900)]
    shards.observe(S, at(2000), at(1900))
    assert shards.due_compactions(NOW + 3 * COMPACTION_INTERVAL_MS) == []


def test_a_reader_that_comes_now_counts_on_what_was_asked_for() -> None:
    """The replica may compact to there before it says so: an as_of chosen earlier could never be read."""
    shards = book(at(1000), since=200)
    shards.due_compactions(NOW)
    shard = shards.get(S)

    assert shard is not None
    assert shard.readable is not None
    assert (shard.readable.since, shard.readable.upper) == (at(900), at(1000))
    shards.observe(S, at(2000), at(950))
    assert shard.readable.since == at(950)


def test_a_shard_that_is_gone_is_let_go_of() -> None:
    """Its last reader has finished after it; only a claim on what is not there is a mistake."""
    shards = ShardBook()
    shards.hold(S, "a", EMPTY)

    with pytest.raises(KeyError, match="not registered"):
        shards.hold(S, "a", at(5))


def test_a_lost_request_is_made_again() -> None:
    """The replica died with it: since has not moved, so it is asked for again."""
    shards = book(at(1000))
    shards.due_compactions(NOW)

    assert [c.frontier for c in shards.due_compactions(NOW + COMPACTION_INTERVAL_MS)] == [at(900)]


def test_an_unknown_shard_is_never_compacted() -> None:
    """Its since may be anything."""
    shards = ShardBook()
    shards.register(S, "file:///s")

    assert shards.due_compactions(NOW) == []


def test_a_shard_without_a_lag_is_never_compacted() -> None:
    """Its owner's instance cannot be read, perhaps: a replica of another one may be told nothing by a guess."""
    shards = ShardBook()
    shards.register(S, "file:///s")
    shards.observe(S, at(NOW), at(0))
    assert shards.due_compactions(NOW) == []

    shards.register(S, "file:///s", 100)
    assert [c.id for c in shards.due_compactions(NOW)] == [S]


def test_an_unreadable_shard_keeps_what_was_known() -> None:
    """Describe gives minimal numbers for it; they are not believed."""
    shards = book(at(1000), since=500)

    shards.described(DescribedShard(S, True, at(0), at(0), WriterTerm(3), error="no such file"))

    shard = shards.get(S)
    assert shard is not None
    assert shard.frontiers is not None
    assert (shard.frontiers.upper, shard.frontiers.since, shard.error) == (at(1000), at(500), "no such file")


def test_frontiers_never_go_back() -> None:
    """A late report of another replica."""
    shards = book(at(1000), since=500)
    shards.observe(S, at(900), at(400))

    pair = shards.frontiers(S)
    assert pair is not None
    assert (pair.upper, pair.since) == (at(1000), at(500))


def test_a_shard_that_is_read_is_not_forgotten_with_its_owner() -> None:
    """The holder's release comes first."""
    shards = book(at(1000))
    shards.hold(S, "export e", at(3))

    shards.forget(S)
    assert shards.get(S) is not None
    shards.release("export e")
    shards.forget(S)
    assert shards.get(S) is None


def test_a_shard_without_an_owner_goes_with_its_last_reader() -> None:
    """Its owner was gone before: for this operator there never was one."""
    shards = ShardBook()
    for reader in ("e", "f"):
        shards.read(S, "file:///s", f"export {reader}")
    shards.hold(S, "stored ns/d/1", at(0))

    for reader in ("export e", "stored ns/d/1"):
        shards.release(reader)
        assert shards.get(S) is not None
    shards.release("export f")
    assert shards.get(S) is None


@pytest.mark.parametrize("owner", ["has a policy", "ingests", "adopts"])
def test_a_shard_whose_owner_comes_after_its_reader_stays(owner: str) -> None:
    """A new operator reads what is stored of one after the other."""
    shards = ShardBook()
    shards.read(S, "file:///s", "export e")
    if owner == "adopts":
        shards.adopt(S, "file:///s", DescribedShard(S, True, at(500), at(0), WriterTerm(3)), None)
    else:
        shards.register(S, "file:///s", 100 if owner == "has a policy" else None, owned=owner == "ingests")

    shards.release("export e")
    assert shards.get(S) is not None


def test_a_shard_whose_owner_came_back_before_its_policy_was_known_stays() -> None:
    """A source that was made anew while somebody read its table, and whose instance nobody has read yet."""
    shards = book(at(1000))
    shards.hold(S, "export e", at(3))
    shards.forget(S)
    shards.register(S, "somewhere", None, owned=True)

    shards.release("export e")
    assert shards.get(S) is not None
