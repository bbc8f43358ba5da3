"""Shards' frontiers and holds: since is lowered only as far as everybody allows, and not too often."""

from __future__ import annotations

import pytest

from tests.controller.worlds import EMPTY, INPUT, NOW, R1, R2, World, at
from tidemark_operator.controller.frontiers.future_reports import MOST_REPLICAS, Early, FrontierPair
from tidemark_operator.controller.frontiers.shards import COMPACTION_INTERVAL_MS, ShardBook
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import ShardId, WriterTerm
from tidemark_protocol.messages.responses import DescribedShard, ShardFrontiers

S = ShardId("s")


def book(upper: Frontier, since: int = 0, lag: int = 100) -> ShardBook:
    shards = ShardBook()
    shards.register(S, "file:///s", lag)
    shards.observe(S, upper, at(since), NOW)
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


@pytest.mark.parametrize(
    ("upper", "since", "pair"),
    [
        pytest.param(at(AHEAD), at(500), (1000, 500), id="an upper ahead of the clock"),
        pytest.param(EMPTY, at(500), (1000, 500), id="the end of what never ends"),
        pytest.param(at(1000), at(NEVER), (1000, 0), id="a since that never comes"),
        pytest.param(at(2000), at(2001), (2000, 0), id="a since beyond the upper"),
        pytest.param(at(1000), EMPTY, (1000, 0), id="that it cannot be read any more"),
        pytest.param(at(NOW + 30_000), at(600), (NOW + 30_000, 600), id="what the clock vouches for"),
    ],
)
def test_must_not_believe_frontiers_of_shards_that_cannot_be(
    upper: Frontier, since: Frontier, pair: tuple[int, int]
) -> None:
    """One replica that lies takes a table from nobody, whether it was known before or not; its peers are believed."""
    shards = book(at(1000))
    shards.register(S, "file:///s", endless=True)
    shards.observe(S, upper, since, NOW)
    assert shards.frontiers(S) == FrontierPair(at(pair[0]), at(pair[1]))

    shards = ShardBook()
    shards.register(S, "file:///s", 100, endless=True)
    credible = pair == (upper.encode(), since.encode())
    assert shards.observe(S, upper, since, NOW) == credible
    assert (shards.frontiers(S) is not None) == credible
    assert shards.observe(S, at(1000), at(200), NOW) != credible
    shards.observe(S, at(1100), at(300), NOW)
    assert shards.frontiers(S) in (FrontierPair(at(1100), at(300)), FrontierPair(upper, since))


def test_what_is_ahead_of_the_clock_is_believed_once_it_is_not() -> None:
    """The operator's clock was behind. As it was reported: the since too."""
    shards = book(at(1000))
    shards.observe(S, at(NOW + 40_000), at(NOW + 39_000), NOW, R1)
    shards.catch_up(NOW + 9_999)
    assert shards.frontiers(S) == FrontierPair(at(1000), at(0))
    shards.catch_up(NOW + 10_000)
    assert shards.frontiers(S) == FrontierPair(at(NOW + 40_000), at(NOW + 39_000))
    assert shards.catch_up(AHEAD) == []


def test_of_several_that_are_ahead_of_the_clock_the_first_is_believed_first_and_the_last_at_last() -> None:
    """Who is always ahead is believed, only later; nothing more need come after the last."""
    shards = book(at(1000))
    for second in (40, 45, 50):
        shards.observe(S, at(NOW + 1000 * second), at(NOW + 1000 * second - 100), NOW, R1)
    shards.catch_up(NOW + 10_000)
    assert shards.frontiers(S) == FrontierPair(at(NOW + 40_000), at(NOW + 39_900))
    shards.catch_up(NOW + 19_999)
    assert shards.frontiers(S) == FrontierPair(at(NOW + 40_000), at(NOW + 39_900))
    shards.catch_up(NOW + 20_000)
    assert shards.frontiers(S) == FrontierPair(at(NOW + 50_000), at(NOW + 49_900))


@pytest.mark.parametrize("lie", [10**15, NEVER, NOW + 31_000])
def test_who_lies_about_what_is_ahead_of_the_clock_takes_no_other_reports_place(lie: int) -> None:
    """Before, between and after what an honest replica says; and its own, once it says what is true."""
    shards = book(at(1000))
    for second in (40, 50):
        shards.observe(S, at(lie), at(0), NOW, R2)
        shards.observe(S, at(NOW + 1000 * second), at(0), NOW, R1)
    shards.observe(S, at(lie), at(0), NOW, R2)
    shards.catch_up(NOW + 10_000)
    assert shards.frontiers(S) == FrontierPair(at(NOW + 40_000), at(0))
    shards.catch_up(NOW + 20_000)
    assert shards.frontiers(S) == FrontierPair(at(NOW + 50_000), at(0))

    shards.observe(S, at(lie), at(0), NOW + 20_000, R2)
    shards.observe(S, at(NOW + 60_000), at(0), NOW + 20_000, R2)
    shards.catch_up(NOW + 30_000)
    assert shards.frontiers(S) == FrontierPair(at(NOW + 60_000), at(0))


@pytest.mark.parametrize("replicas", [1, 2 * MOST_REPLICAS])
def test_replicas_that_are_always_ahead_are_believed_later_however_many_they_are(replicas: int) -> None:
    """Where the operator's clock was set back, all are; and one of them lies."""
    shards = book(at(1000))
    for second in range(100):
        now = NOW + 1000 * second
        for index in range(replicas):
            shards.observe(S, at(now + 40_000), at(0), now, f"r{index}")
        shards.observe(S, at(NEVER), at(0), now, "liar")
        shards.catch_up(now)
    found = shards.frontiers(S)
    assert found is not None
    assert at(NOW + 100_000) <= found.upper < at(NEVER)


def test_what_replicas_say_of_shards_ahead_of_the_clock_is_kept_for_each() -> None:
    """On their connections."""
    world = World()
    world.connect(R1, R2)
    for replica, upper in ((R1, NOW + 40_000), (R1, NOW + 50_000), (R2, NEVER)):
        world.hear(replica, ShardFrontiers(INPUT, at(upper), at(0)))
    for ahead in (10_000, 20_000):
        world.instance.maintain(NOW + ahead)
    assert world.shards.frontiers(INPUT) == FrontierPair(at(NOW + 50_000), at(0))


def test_what_is_kept_of_reports_ahead_of_the_clock_is_bounded() -> None:
    """Replicas that lie come and go, for months."""
    early = Early()
    for index in range(10_000):
        early.add(f"r{index}", FrontierPair(at(NEVER), at(0)))
        early.add("r", FrontierPair(at(AHEAD + index), at(0)))
    assert len(early.due(NEVER)) <= MOST_REPLICAS
    early.add("r", FrontierPair(at(NEVER), at(0)))
    assert early.due(AHEAD) == []
    assert early.due(NEVER) == [FrontierPair(at(NEVER), at(0))]


def test_compaction_is_asked_for_at_most_every_ten_seconds() -> None:
    """However fast the upper moves; and not again when there is nothing new."""
    shards = book(at(1000))

    assert [c.frontier for c in shards.due_compactions(NOW)] == [at(900)]
    shards.observe(S, at(2000), at(0), NOW)
    assert shards.due_compactions(NOW + COMPACTION_INTERVAL_MS - 1) == []
    assert [c.frontier for c in shards.due_compactions(NOW + COMPACTION_INTERVAL_MS)] == [at(1900)]
    shards.observe(S, at(2000), at(1900), NOW)
    assert shards.due_compactions(NOW + 3 * COMPACTION_INTERVAL_MS) == []


def test_a_reader_that_comes_now_counts_on_what_was_asked_for() -> None:
    """The replica may compact to there before it says so: an as_of chosen earlier could never be read."""
    shards = book(at(1000), since=200)
    shards.due_compactions(NOW)
    shard = shards.get(S)

    assert shard is not None
    assert shard.readable is not None
    assert (shard.readable.since, shard.readable.upper) == (at(900), at(1000))
    shards.observe(S, at(2000), at(950), NOW)
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


def test_a_shard_that_nobody_has_given_a_lag_is_never_compacted() -> None:
    """Its owner's instance cannot be read, perhaps: a replica of another one may be told nothing by a guess."""
    shards = ShardBook()
    shards.register(S, "file:///s")
    shards.observe(S, at(NOW), at(0), NOW)
    assert shards.due_compactions(NOW) == []

    shards.register(S, "file:///s", 100)
    assert [c.id for c in shards.due_compactions(NOW)] == [S]


def test_an_unreadable_shard_keeps_what_was_known() -> None:
    """Describe gives minimal numbers for it; they are not believed."""
    shards = book(at(1000), since=500)

    shards.described(DescribedShard(S, True, at(0), at(0), WriterTerm(3), error="no such file"), NOW)

    shard = shards.get(S)
    assert shard is not None
    assert shard.frontiers is not None
    assert (shard.frontiers.upper, shard.frontiers.since, shard.error) == (at(1000), at(500), "no such file")


def test_frontiers_never_go_back() -> None:
    """A late report of another replica."""
    shards = book(at(1000), since=500)
    shards.observe(S, at(900), at(400), NOW)

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


def test_a_shard_that_is_read_and_owned_by_nobody_goes_with_its_last_reader() -> None:
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
        shards.adopt(S, "file:///s", DescribedShard(S, True, at(500), at(0), WriterTerm(3)), None, NOW)
    else:
        shards.register(S, "file:///s", 100 if owner == "has a policy" else None, endless=owner == "ingests")

    shards.release("export e")
    assert shards.get(S) is not None


def test_a_shard_whose_owner_came_back_before_its_policy_was_known_stays() -> None:
    """A source that was made anew while somebody read its table, and whose instance nobody has read yet."""
    shards = book(at(1000))
    shards.hold(S, "export e", at(3))
    shards.forget(S)
    shards.register(S, "somewhere", None, endless=True)

    shards.release("export e")
    assert shards.get(S) is not None
