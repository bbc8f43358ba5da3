"""The snapshots that `why` makes: of the objects on the way to its answer alone, with the leases that keep them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.gateway.registries import add_dataflow, registry, shard_of
from tidemark_operator.controller.frontiers.lease_book import LeaseBook, LeaseTarget
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.gateway.explanations import why_snapshot
from tidemark_operator.gateway.explanations.why import find_causes
from tidemark_operator.gateway.explanations.why_snapshot import RelationSnapshots
from tidemark_operator.introspection import relations
from tidemark_operator.introspection.relations import ColumnFilter, read_rows
from tidemark_operator.kube.cache import Key
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages.commands import ShardTarget

OTHERS, BEHIND_MS = 50, 7_000
LEASES = GlobalId("tidemark_introspection.leases")


def leased() -> LeaseBook:
    """Tables s.a and s.b, of which three leases hold s.a, one of them s.b too. Two are behind the read policy."""
    book, now = ShardBook(), now_ms()
    targets = dict[GlobalId, LeaseTarget]()
    for name in ("a", "b"):
        shard = shard_of(f"s.{name}")
        book.register(shard.shard_id, shard.location, 0, owned=True)
        book.observe(shard.shard_id, Frontier.at(Time(now)), Frontier.at(Time(0)))
        targets[GlobalId(f"s.{name}")] = ShardTarget(GlobalId(f"s.{name}"), shard)
    leases = LeaseBook(book, lambda id: None, 600_000, lambda: 0)
    first = {GlobalId("s.a"): targets[GlobalId("s.a")]}
    for id, caller, behind, held in (
        ("0123456789", "anne", BEHIND_MS, first),
        ("abcdefghij", "bob", 3_000, targets),
        ("klmnopqrst", "anne", -1, first),
    ):
        leases.grant(id, caller, Time(now - behind), held, now)
    return leases


def context() -> Any:
    """Dataflow `top` reads `mid`, which reads s.a; OTHERS read it, too."""
    known, leases = registry(), leased()
    mid = add_dataflow(known, "mid", shards=("s.a",))
    add_dataflow(known, "top", indexes=(mid,), reads=("mid",))
    for number in range(OTHERS):
        add_dataflow(known, f"other{number}", shards=("s.a",))
    fleet = SimpleNamespace(leases=lambda _: leases, of=lambda _: [], book=lambda _: leases._shards)
    return SimpleNamespace(registry=known, fleet=fleet, running=lambda *_: None)


def test_only_the_objects_on_the_way_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A status of each object of a large namespace took the event loop a second."""
    looked_at = list[Key]()

    def conditions(context: object, key: Key, types: object) -> tuple[str, str]:
        looked_at.append(key)
        return "", "on replica r1"

    monkeypatch.setattr(why_snapshot, "_conditions", conditions)
    found = RelationSnapshots(context(), "ns")
    (cause,) = find_causes("top", found)
    assert [below.subject for below in cause.because] == ["mid.e"]
    assert sorted(key.name for key in looked_at) == ["mid", "s", "top"]
    assert {f"other{number}.e" for number in range(OTHERS)} | {"s.a", "s.b", "mid.e", "top.e"} == {*found}
    assert len(found) == OTHERS + 4


def test_a_relation_is_said_to_be_kept_by_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(why_snapshot, "_conditions", lambda *_: ("", "on replica r1"))
    a, b = find_causes("s", RelationSnapshots(context(), "ns"))
    assert "; 2 leases keep it readable from " in a.says
    assert a.says.endswith(", 7s before its read policy (the furthest is of anne)")
    assert "; a lease keeps it readable from " in b.says
    assert b.says.endswith(", 3s before its read policy (the furthest is of bob)")


@pytest.mark.parametrize(
    "wanted", [{0: "s.b"}, {0: "no.such"}, {1: "abcdefgh"}, {2: "anne"}, {0: "s.a", 2: "bob"}, {2: "nobody"}]
)
def test_a_filter_leaves_out_rows_of_leases_before_they_are_made(
    wanted: ColumnFilter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows that are left are those that the filter admits."""
    given = context()
    rows = read_rows(given, "ns", LEASES)
    assert len(rows) == 4
    expected = [row for row in rows if all(row[at] == text for at, text in wanted.items())]
    made = list(relations.rows_of(given, "ns", "leases", wanted))
    assert [row[:5] for row in made] == [row[:5] for row in expected]
    assert [row[:5] for row in read_rows(given, "ns", LEASES, wanted)] == [row[:5] for row in expected]


def test_leases_of_an_object_without_relations_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(why_snapshot, "_conditions", lambda *_: ("SchemaPending: it is read", ""))
    given = context()
    (source,) = given.registry.sources("ns")
    source.pinned = None
    (cause,) = find_causes("s", RelationSnapshots(cast(Any, given), "ns"))
    assert cause.says == "SchemaPending: it is read"
