"""Leases of clients: what they hold stays readable until they end, and no longer than they may hold it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.controller.harness import INDEX, INPUT, LAG, NOW, R1, InstanceHarness, at
from tests.protocol.samples import SHARD
from tidemark_operator.controller.frontiers.collection import Collection
from tidemark_operator.controller.frontiers.lease_book import LEASE_MS, MAX_LEASES, LeaseBook, LeaseTarget
from tidemark_operator.controller.frontiers.shards import COMPACTION_INTERVAL_MS, LEASED, ShardBook
from tidemark_operator.errors import QueryRefused, TimeNotReadable, TooMany
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages.commands import AllowCompaction, AllowShardCompaction, IndexTarget, ShardTarget

TABLE = GlobalId(INPUT)
TARGETS: dict[GlobalId, LeaseTarget] = {INDEX: IndexTarget(INDEX), TABLE: ShardTarget(TABLE, SHARD)}
MOST = 5_000


class Leased(InstanceHarness):
    """An index and its input, both complete up to 499 and then as far as `goes_on` says."""

    def __init__(self, stands: bool = False) -> None:
        super().__init__()
        self.shards.stands, self.found = (lambda: stands), 0
        self.install()
        self.connect(R1)
        self.leases = LeaseBook(self.shards, self._index, MOST, lambda: self.now)
        self.goes_on(500, 0)

    def _index(self, id: GlobalId) -> Collection | None:
        self.found += 1
        return self.instance.dataflows.index(id)

    def grant(self, as_of: int, id: str = "mine", caller: str = "anne", *, adds: bool = False, **only: bool) -> object:
        targets = {id: target for id, target in TARGETS.items() if not only or only.get(id.partition("/")[2])}
        return self.leases.grant(id, caller, Time(as_of), targets, self.now, adds=adds)

    def goes_on(self, upper: int, ms: int = COMPACTION_INTERVAL_MS) -> None:
        """All is complete below `upper`, and `ms` later what nobody holds is compacted."""
        self.now += ms
        self.shards.observe(INPUT, at(upper), at(0))
        self.report(R1, at(upper))
        self.leases.maintain(self.now)
        self.maintain()

    @property
    def sinces(self) -> tuple[int, int]:
        """From when on index and table are kept, by the commands that were sent."""
        found = {INDEX: 300, INPUT: 0}
        self.commands = [*getattr(self, "commands", []), *self.sent(R1)]
        for command in self.commands:
            if isinstance(command, AllowCompaction | AllowShardCompaction) and command.id in found:
                found[command.id] = command.frontier.encode()
        return found[INDEX], found[INPUT]


def test_a_lease_keeps_an_index_and_its_input_readable_at_its_time() -> None:
    """Beyond the read policy; without one the same time is gone."""
    without, leased = Leased(), Leased()
    assert leased.grant(499) == (INDEX, TABLE)
    for upper in (700, 1_000):
        without.goes_on(upper)
        leased.goes_on(upper)

    assert without.sinces == (1_000 - LAG, 1_000 - LAG)
    assert leased.sinces == (499, 499)


def test_a_lease_ends_a_minute_after_it_was_granted_last() -> None:
    """Granted again it lasts for another minute."""
    leased = Leased()
    leased.grant(499)
    leased.goes_on(1_000, LEASE_MS - 1)
    leased.grant(499)
    leased.goes_on(1_100, LEASE_MS - 1)
    assert leased.sinces[0] == 499

    leased.goes_on(1_200, 1)
    assert leased.sinces[0] == 1_200 - LAG
    assert not len(leased.leases)


def test_a_lease_that_is_ended_holds_nothing() -> None:
    """By its client."""
    leased = Leased()
    leased.grant(499)
    leased.leases.end(["mine", "another"])
    leased.goes_on(1_000)

    assert leased.sinces == (1_000 - LAG, 1_000 - LAG)


def test_a_lease_moves_on_with_its_client() -> None:
    """The lease of a stream moves so: from the later time on everything is kept, and nothing before."""
    leased = Leased()
    leased.grant(499)
    leased.goes_on(700)
    assert leased.grant(650) == (INDEX, TABLE)
    leased.goes_on(1_000)

    assert leased.sinces == (650, 650)


def test_a_lease_never_holds_more_than_it_may() -> None:
    """However often it is granted: at the bound it ends, and is not granted again at this time."""
    leased = Leased()
    leased.grant(499)
    leased.goes_on(499 + LAG + MOST)
    leased.grant(499)
    assert leased.sinces[0] == 499

    leased.goes_on(499 + LAG + MOST + 1)
    assert leased.sinces[0] == 499 + MOST + 1
    with pytest.raises(TimeNotReadable, match="nothing can be held at 499 any more: "):
        leased.grant(499)


def test_a_time_that_is_gone_is_not_held() -> None:
    """Another relation, which still has it, is held alone."""
    leased = Leased()
    leased.goes_on(1_000)

    with pytest.raises(TimeNotReadable):
        leased.grant(600, d=True, i=True)
    leased = Leased()
    leased.shards.observe(INPUT, at(500), at(450))
    assert leased.grant(420) == (INDEX,)


def test_a_lease_adds_what_is_read_at_its_time() -> None:
    """And refuses another time, which its first relations may not have."""
    leased = Leased()
    leased.leases.grant("mine", "anne", Time(499), {TABLE: TARGETS[TABLE]}, NOW, adds=True)
    assert leased.leases.grant("mine", "anne", Time(499), {INDEX: TARGETS[INDEX]}, NOW, adds=True) == (TABLE, INDEX)
    with pytest.raises(QueryRefused, match="the lease holds relations at 499"):
        leased.grant(450, adds=True)


def test_a_lease_keeps_no_dataflow_from_being_dropped() -> None:
    """The rows that it held are gone with the index, and another index of the same id is not."""
    leased = Leased()
    leased.grant(499)
    leased.instance.drop("ns/d")
    leased.leases.maintain(leased.now)

    assert AllowCompaction(INDEX, at(0).empty()) in leased.sent(R1)
    assert [held.id for held in leased.leases.relations(leased.now)] == [TABLE]


def test_a_deleted_table_is_forgotten_in_spite_of_a_lease() -> None:
    """Its owner and its readers are gone."""
    shards = ShardBook()
    shards.register(INPUT, SHARD.location, LAG)
    shards.observe(INPUT, at(500), at(0))
    leases = LeaseBook(shards, lambda id: None, MOST, lambda: NOW)
    leases.grant("mine", "anne", Time(499), {TABLE: TARGETS[TABLE]}, NOW)
    shards.forget(INPUT)
    assert shards.get(INPUT) is not None

    leases.maintain(NOW)
    assert shards.get(INPUT) is None
    assert not len(leases)


def test_leases_are_bounded_and_each_has_one_user() -> None:
    """Half of them are one user's; an id that another one has is refused."""
    leased = Leased()
    for number in range(MAX_LEASES // 2):
        leased.grant(499, f"of anne {number}")
    with pytest.raises(TooMany):
        leased.grant(499, "one more")
    leased.grant(499, "of bob", "bob")
    with pytest.raises(QueryRefused, match="another user's"):
        leased.grant(499, "of bob", "anne")

    leased.leases.end(["of anne 0"])
    leased.grant(499, "one more")


def test_a_new_operator_advances_nothing_before_leases_can_be_renewed() -> None:
    """Then it goes on from what was renewed; without that from its read policy."""
    for renewed, expected in ((True, (499, 499)), (False, (1_100 - LAG, 1_100 - LAG))):
        leased = Leased(stands=True)
        leased.goes_on(1_000, LEASE_MS - 1)
        assert leased.sinces == (300, 0)
        if renewed:
            assert leased.grant(499) == (INDEX, TABLE)
        leased.shards.stands = lambda: False
        leased.goes_on(1_100, 1)
        assert leased.sinces == expected


def test_a_clock_that_is_set_ends_no_lease() -> None:
    """By a day forward, as after a start without network; the lease ends by a clock that nobody sets."""
    shards, steady = ShardBook(), [0]
    shards.register(INPUT, SHARD.location, LAG, owned=True)
    shards.observe(INPUT, at(500), at(0))
    leases = LeaseBook(shards, lambda id: None, MOST, lambda: steady[0])
    leases.grant("mine", "anne", Time(499), {TABLE: TARGETS[TABLE]}, NOW)
    leases.maintain(NOW + 86_400_000)
    assert [held.ends_in_ms for held in leases.relations(NOW)] == [LEASE_MS]

    steady[0] = LEASE_MS
    leases.maintain(NOW - 86_400_000)
    assert not len(leases)


def test_maintenance_looks_at_what_is_held_once() -> None:
    """However many leases hold it; and a table and an index have one hold for all."""
    leased = Leased()
    for number in range(200):
        leased.grant(499, f"mine {number}", f"anne {number}")
    leased.leases.maintain(leased.now)
    leased.found = 0
    leased.leases.maintain(leased.now)
    assert leased.leases.furthest_behind_ms(leased.now) == 0
    assert leased.found == 2
    index, table = leased.instance.dataflows.index(INDEX), leased.shards.get(INPUT)
    assert index is not None
    assert table is not None
    assert [list(each.holds).count(LEASED) for each in (index, table)] == [1, 1]


def test_of_many_leases_the_earliest_one_counts() -> None:
    """It does until it ends, is granted at a later time, or reaches the bound, which ends no other lease."""
    leased = Leased()
    for as_of in (455, 499, 470, 440):
        leased.grant(as_of, f"at {as_of}")
    leased.goes_on(600)
    assert leased.sinces == (440, 440)
    assert leased.leases.furthest_behind_ms(leased.now) == 600 - LAG - 440
    leased.leases.end(["at 440"])
    leased.goes_on(700)
    assert leased.sinces == (455, 455)
    leased.grant(490, "at 455")
    leased.goes_on(800)
    assert leased.sinces == (470, 470)

    leased.goes_on(470 + LAG + MOST + 1)
    assert leased.sinces == (490, 490)
    assert {held.lease.id for held in leased.leases.relations(leased.now)} == {"at 499", "at 455"}


def test_the_leases_that_keep_a_relation_from_before_its_read_policy_are_counted() -> None:
    """`relations` lists the same leases. Leases within the read policy keep nothing."""
    leased = Leased()
    for as_of in (499, 440, 470):
        leased.grant(as_of, f"at {as_of}")
    leased.grant(450, "of the index alone", i=True)
    leased.goes_on(480 + LAG)
    listed = list(leased.leases.relations(leased.now))
    for id, index, shard in ((INDEX, INDEX, None), (TABLE, None, SHARD.shard_id)):
        behind = [held for held in listed if held.id == id and held.behind_ms]
        kept = leased.leases.kept_behind(index, shard, leased.now)
        assert kept is not None
        furthest = max(behind, key=lambda held: held.behind_ms)
        assert (kept.leases, kept.furthest, kept.behind_ms) == (len(behind), furthest.lease, furthest.behind_ms)
        assert list(leased.leases.relations(leased.now, frozenset([id]))) == [h for h in listed if h.id == id]
    leased.leases.end([held.lease.id for held in listed if held.behind_ms])
    assert leased.leases.kept_behind(INDEX, None, leased.now) is None
    assert leased.leases.kept_behind(GlobalId("other"), None, leased.now) is None


def test_an_index_that_is_installed_again_is_held() -> None:
    """By the next maintenance, though nobody has renewed."""
    leased = Leased()
    leased.grant(499)
    index = leased.instance.dataflows.index(INDEX)
    assert index is not None
    index.holds.clear()
    again = replace(index, holds={})
    leased.leases._index = lambda id: again
    leased.leases.maintain(leased.now)
    assert again.holds == {LEASED: at(499)}


def test_leases_last_while_nobody_can_renew_them() -> None:
    """The operator may not lead any more; once it does, clients have all the time again."""
    leased = Leased()
    leased.grant(499)
    for _ in range(3):
        leased.now += LEASE_MS
        leased.leases.prolong()
        leased.goes_on(1_000)
    assert leased.sinces == (499, 499)
    leased.goes_on(1_100, LEASE_MS)
    assert not len(leased.leases)
