"""Old dataflows against the ones a new client wants: reuse, or the reason why not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.replica.plans import COLUMNS, copies, shard, transient
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, Time, WriterTerm
from tidemark_protocol.plan.dataflow import DataflowDescription, SubscribeSink
from tidemark_protocol.plan.refresh import RefreshSchedule
from tidemark_replica.dataflow.reconciliation import ReuseCandidate, reconcile

INDEX = copies("a", 10, source=shard("t"), index="i")
OTHER_PLAN = copies("a", 10, source=shard("other"), index="i")
READER = copies("b", 10, imports_index="i", index="j")


AHEAD = Frontier.at(1000)
HOURLY, ID = RefreshSchedule(3_600_000), GlobalId("v-view")


def verdict(
    old: DataflowDescription, new: DataflowDescription, since: Frontier | None = None, reads_from: Frontier = AHEAD
) -> str | None:
    sinces = dict.fromkeys(old.export_ids, since or Frontier.at(old.as_of))
    return reconcile([ReuseCandidate(old, sinces, reads_from)], [new], {})[0].reason


@pytest.mark.parametrize(
    ("old", "new", "since", "reason"),
    [
        (INDEX, INDEX, None, None),
        (INDEX, replace(INDEX, as_of=Time(25), name="renamed"), None, None),
        (INDEX, replace(INDEX, until=Time(99)), None, "incompatible"),
        (INDEX, replace(INDEX, as_of=Time(25)), Frontier.at(25), None),
        (INDEX, replace(INDEX, as_of=Time(25)), Frontier.at(26), "compacted"),
        (INDEX, INDEX, Frontier.empty(), "compacted"),
        (INDEX, replace(INDEX, as_of=Time(9)), None, "incompatible"),
        (INDEX, OTHER_PLAN, None, "incompatible"),
        (INDEX, copies("c", 10, source=shard("t"), index="k"), None, "missing"),
        (READER, READER, None, "dependency"),
        (transient("s", SubscribeSink(COLUMNS)), transient("s", SubscribeSink(COLUMNS)), None, "subscribe"),
    ],
)
def test_reuse_or_the_reason_why_not(
    old: DataflowDescription, new: DataflowDescription, since: Frontier | None, reason: str | None
) -> None:
    """Names do not count; plan, exports, `until`, as_of, compaction and what is imported do."""
    assert verdict(old, new, since) == reason


@pytest.mark.parametrize(
    ("reads_from", "reason"), [(Frontier.at(24), "behind"), (Frontier.at(25), None), (Frontier.empty(), None)]
)
def test_one_that_fell_behind_begins_again(reads_from: Frontier, reason: str | None) -> None:
    """While nobody knew it, its inputs were held for others, from the wanted as_of on."""
    assert verdict(INDEX, replace(INDEX, as_of=Time(25)), reads_from=reads_from) == reason


def test_one_whose_table_another_program_changed_begins_again() -> None:
    """Whatever else it has."""
    here = ReuseCandidate(INDEX, dict.fromkeys(INDEX.export_ids, Frontier.at(10)), AHEAD, outdated=True)
    assert reconcile([here], [INDEX], {})[0].reason == "outdated"


@pytest.mark.parametrize(
    ("refresh", "had", "wanted", "reason"),
    [
        (HOURLY, {ID: 3}, {ID: 3}, None),
        (HOURLY, {ID: 3}, {}, None),
        (HOURLY, {}, {ID: 3}, None),
        (HOURLY, {ID: 3}, {ID: 5}, "term"),
        (None, {ID: 3}, {ID: 3}, None),
        (None, {ID: 3}, {}, None),
        (None, {ID: 3}, {ID: 5}, "term"),
    ],
)
def test_a_view_goes_on_under_its_own_term_alone(
    refresh: RefreshSchedule | None, had: dict[GlobalId, WriterTerm], wanted: dict[GlobalId, WriterTerm], reason: object
) -> None:
    """It would take for its own what another revision has written meanwhile."""
    view = copies("v", 10, source=shard("t"), view=shard("out"), refresh=refresh)
    here = ReuseCandidate(view, dict.fromkeys(view.export_ids, Frontier.at(10)), AHEAD, had)

    assert reconcile([here], [view], {}, wanted)[0].reason == reason
    assert reconcile([replace(here, superseded=True)], [view], {}, wanted)[0].reason == "term"


def test_a_chain_is_reused_only_from_its_root_on() -> None:
    """An importer is reused with the index it reads, and falls with it."""
    olds = [ReuseCandidate(d, dict.fromkeys(d.export_ids, Frontier.at(10)), AHEAD) for d in (INDEX, READER)]

    assert [v.reason for v in reconcile(olds, [INDEX, READER], {})] == [None, None]
    assert [v.reason for v in reconcile(olds, [OTHER_PLAN, READER], {})] == ["incompatible", "dependency"]


@pytest.mark.parametrize(
    ("view", "allowed", "reason"),
    [(24, 24, None), (24, 23, "compacted"), (24, None, "compacted"), (15, None, None), (None, None, "compacted")],
)
def test_each_export_is_compacted_as_far_as_the_client_says(
    view: int | None, allowed: int | None, reason: str | None
) -> None:
    """A view's since runs ahead of an index's in the same dataflow, whose as_of is the lesser of both."""
    both = copies("a", 10, source=shard("t"), index="i", view=shard("v"))
    index_id, view_id = both.export_ids
    sinces = {index_id: Frontier.at(15), view_id: Frontier(None if view is None else Time(view))}
    settings = {} if allowed is None else {view_id: Frontier.at(allowed)}

    (verdict,) = reconcile([ReuseCandidate(both, sinces, AHEAD)], [replace(both, as_of=Time(15))], settings)
    assert verdict.reason == reason
