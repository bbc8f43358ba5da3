"""Where a dataflow begins, as a table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.controller.harness import EMPTY, at
from tidemark_operator.controller.frontiers.as_of import AsOfRequest, Input, select_as_of
from tidemark_operator.controller.frontiers.shards import FrontierPair
from tidemark_operator.errors import Rejected, Waiting
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Time


def shard(since: int, upper: int | None) -> Input:
    return Input("tpch.orders", FrontierPair(EMPTY if upper is None else at(upper), at(since)))


UNKNOWN = Input("tpch.orders", None, "permission denied")

CASES: list[tuple[str, AsOfRequest, int]] = [
    ("new: the latest complete time", AsOfRequest((shard(10, 100),)), 99),
    ("new: complete in all inputs", AsOfRequest((shard(10, 100), shard(20, 80))), 79),
    ("new: an input cannot be read that far back", AsOfRequest((shard(10, 50), shard(70, 100))), 70),
    ("new: finished inputs at their since", AsOfRequest((shard(10, None),)), 10),
    ("new: constants", AsOfRequest(()), 0),
    ("new: asked for", AsOfRequest((shard(10, 100),), requested=Time(40)), 40),
    ("a view goes on where its shard ends", AsOfRequest((shard(10, 100),), sinks=(at(61),), stored=Time(12)), 60),
    ("a view whose inputs moved on", AsOfRequest((shard(80, 100),), sinks=(at(61),), stored=Time(12)), 80),
    ("a finished view", AsOfRequest((shard(10, None),), sinks=(EMPTY,), stored=Time(12)), 12),
    ("an index that no replica has", AsOfRequest((shard(50, 100),), stored=Time(12)), 50),
    ("a stored one that never ran", AsOfRequest((shard(5, 100),), stored=Time(12)), 12),
    ("running: where the replica is", AsOfRequest((shard(10, 100),), stored=Time(12), running=(at(40),)), 40),
    ("running: beyond what each export needs", AsOfRequest((shard(10, 100),), running=(at(40), at(45))), 45),
    ("a task goes on where its table ends", AsOfRequest((shard(60, 100),), (at(61),), Time(12), exact=True), 60),
    ("a task that never wrote", AsOfRequest((shard(5, 100),), (), Time(12), exact=True), 12),
    ("a task that is finished", AsOfRequest((shard(50, None),), (EMPTY,), Time(12), exact=True), 50),
    ("new: the latest time before its end", AsOfRequest((shard(10, 100),), until=Time(50)), 49),
    ("new: the end is not there yet", AsOfRequest((shard(10, 100),), until=Time(100)), 99),
    ("new: asked for, before its end", AsOfRequest((shard(10, 100),), requested=Time(40), until=Time(41)), 40),
    ("new: only the last time can be read", AsOfRequest((shard(49, 100),), until=Time(50)), 49),
    ("a view whose shard is beyond its end", AsOfRequest((shard(9, 90),), (at(61),), Time(12), until=Time(50)), 49),
    ("a view that goes on to its end", AsOfRequest((shard(9, 90),), (at(50),), Time(12), until=Time(50)), 49),
    ("an index whose inputs went on", AsOfRequest((shard(9, 90),), stored=Time(12), until=Time(50)), 12),
    ("running, and at its end", AsOfRequest((shard(9, 90),), running=(at(50),), until=Time(50)), 49),
    ("sealed", AsOfRequest((shard(10, None),), (EMPTY,), Time(12), sealed=True), 12),
    ("sealed: inputs moved on", AsOfRequest((shard(30, 90),), (EMPTY,), Time(12), until=Time(50), sealed=True), 30),
    ("sealed: beyond its end", AsOfRequest((shard(80, 90),), (EMPTY,), Time(12), until=Time(50), sealed=True), 12),
    ("sealed: inputs are unknown", AsOfRequest((UNKNOWN,), (EMPTY,), Time(12), until=Time(50), sealed=True), 12),
    ("running, the input unreadable for now", AsOfRequest((UNKNOWN,), stored=Time(12), running=(at(40),)), 40),
]


@pytest.mark.parametrize(("request_", "expected"), [pytest.param(r, e, id=name) for name, r, e in CASES])
def test_as_of(request_: AsOfRequest, expected: int) -> None:
    """The bounds, and which gives way to which."""
    assert select_as_of(request_) == expected


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        pytest.param((UNKNOWN,), "tpch.orders is: permission denied", id="nobody knows how far the input is"),
        pytest.param((shard(0, 0),), "first data of tpch.orders", id="the input is empty so far"),
    ],
)
def test_a_new_dataflow_waits_for_its_inputs(inputs: tuple[Input, ...], message: str) -> None:
    """And says which."""
    with pytest.raises(Waiting, match=message):
        select_as_of(AsOfRequest(inputs))


def test_a_time_that_is_gone_is_refused() -> None:
    """With the time from which on it could be read."""
    with pytest.raises(Rejected, match="from 10 on"):
        select_as_of(AsOfRequest((shard(10, 100),), requested=Time(9)))


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(AsOfRequest((shard(50, 100),), until=Time(50)), id="new"),
        pytest.param(AsOfRequest((shard(60, 100),), stored=Time(12), until=Time(50)), id="stored"),
        pytest.param(AsOfRequest((shard(60, 100),), (at(40),), Time(12), until=Time(50)), id="a view on its way"),
        pytest.param(AsOfRequest((shard(60, 100),), stored=Time(12), running=(at(40),), until=Time(50)), id="running"),
        pytest.param(AsOfRequest((shard(60, 100),), requested=Time(70), until=Time(50)), id="asked for too late"),
    ],
)
def test_an_end_before_all_readable_times_is_refused(request_: AsOfRequest) -> None:
    """With the end, and where it could be: what was never computed must not be said to be complete."""
    with pytest.raises(Rejected, match=r"until is 50, but the inputs can be read from [56]0 on") as refused:
        select_as_of(request_)
    assert refused.value.reason == "UntilNotReadable"


FRONTIERS = st.integers(1, 20)
INPUTS = st.builds(lambda upper, back: shard(max(0, upper - back), upper), FRONTIERS, st.integers(1, 20))


@given(
    inputs=st.lists(INPUTS, max_size=3).map(tuple),
    sinks=st.lists(st.one_of(FRONTIERS.map(at), st.just(EMPTY)), max_size=2).map(tuple),
    stored=st.none() | FRONTIERS.map(Time),
    running=st.lists(FRONTIERS.map(at), max_size=2).map(tuple),
    until=st.none() | FRONTIERS.map(Time),
    sealed=st.booleans(),
)
def test_where_it_begins_can_be_read_and_is_before_its_end(
    inputs: tuple[Input, ...],
    sinks: tuple[Frontier, ...],
    stored: Time | None,
    running: tuple[Frontier, ...],
    until: Time | None,
    sealed: bool,
) -> None:
    """Whatever is known of it. It is refused only where no time at all is both; what is sealed never is."""
    until = until if stored is None or until is None else Time(max(until, stored + 1))
    request = AsOfRequest(inputs, sinks, stored, running, until=until, sealed=sealed)
    lower = max((i.frontiers.since.encode() for i in inputs if i.frontiers), default=0)
    try:
        as_of = select_as_of(request)
    except Rejected:
        assert not sealed
        assert until is not None
        assert lower >= until
    else:
        assert until is None or as_of < until
        assert as_of >= lower or (sealed and until is not None and lower >= until)


@pytest.mark.parametrize("running", [(), (at(80),)], ids=["nowhere", "on a replica"])
def test_a_task_that_would_leave_out_a_time_is_refused(running: tuple[Frontier, ...]) -> None:
    """With what is there and what can be read; a view in its place would be corrected, and goes on."""
    request = AsOfRequest((shard(80, 100),), (at(61),), Time(12), running, exact=True)
    with pytest.raises(Rejected, match="complete up to 61, but its inputs can be read from 80 on") as refused:
        select_as_of(request)
    assert refused.value.reason == "HistoryGone"


def test_a_stored_dataflow_does_not_wait_for_first_data() -> None:
    """It was there before: an input that was made anew is as empty as it is."""
    assert select_as_of(AsOfRequest((Input("a", FrontierPair(Frontier.minimum(), at(0))),), stored=Time(3))) == 3
