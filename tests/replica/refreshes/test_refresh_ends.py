"""A refreshed view's table is sealed once nothing can change in it any more."""

from __future__ import annotations

from tests.replica.refreshes.refresh_model import settle
from tests.replica.refreshes.test_refresh_progress import hourly, one
from tidemark_protocol.frontier import EMPTY_SENTINEL
from tidemark_protocol.ids import Time
from tidemark_protocol.plan.refresh import RefreshSchedule
from tidemark_replica.sinks.table.refresh_times import RefreshTimes


def test_the_last_refresh_seals_the_table() -> None:
    """Where there are times alone, all of them over, nothing can ever change."""
    replica, table = one(RefreshTimes(RefreshSchedule(at=(Time(10), Time(20)))))
    settle(replica, 20)
    assert table.upper == 20
    settle(replica, 21)
    table.check()

    assert (table.upper, replica.steps) == (EMPTY_SENTINEL, 3)


def test_the_last_of_some_times_is_the_end_also_where_until_is_later() -> None:
    """But a time at or after `until` is none: until then the table goes on."""
    last, never = RefreshSchedule(at=(Time(10),)), RefreshSchedule(at=(Time(10), Time(40)))
    (replica, ended), (other, going) = one(RefreshTimes(last, until=30)), one(RefreshTimes(never, until=30))
    for each in (replica, other):
        settle(each, 11)

    assert (ended.upper, going.upper) == (EMPTY_SENTINEL, 11)
    settle(other, 30)
    assert going.upper == EMPTY_SENTINEL


def test_a_view_with_past_refreshes_alone_has_its_contents_at_creation() -> None:
    """The first write is the only one."""
    _, table = one(RefreshTimes(RefreshSchedule(at=(Time(1),))), inputs=8)
    table.check()

    assert (table.upper, {time for _, time, _ in table.updates}) == (EMPTY_SENTINEL, {3})


def test_no_refresh_is_at_the_end_or_after_it() -> None:
    """The table is sealed once its inputs are as far as `until`, with what the last refresh before showed."""
    replica, table = one(hourly(until=20))
    settle(replica, 19)
    assert table.upper == 19
    settle(replica, 20)
    table.check()

    assert table.upper == EMPTY_SENTINEL
    assert {time for _, time, _ in table.updates} == {3, 10}
