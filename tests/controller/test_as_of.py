"""Where a dataflow begins, as a table."""

from __future__ import annotations

import pytest

from tests.controller.worlds import EMPTY, at
from tidemark_operator.controller.as_of import AsOfRequest, Input, select_as_of
from tidemark_operator.controller.early import FrontierPair
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
    ("running, the input unreadable for now", AsOfRequest((UNKNOWN,), stored=Time(12), running=(at(40),)), 40),
]


@pytest.mark.parametrize(("request_", "expected"), [pytest.param(r, e, id=name) for name, r, e in CASES])
def test_as_of(request_: AsOfRequest, expected: int) -> None:
    """The bounds, and which gives way to which."""
    assert select_as_of(request_) == expected


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        pytest.param((UNKNOWN,), "tpch.orders is: permission denied", id="nobody knows how far the input is"),
        pytest.param((shard(0, 0),), "first data of tpch.orders", id="the input is empty so far"),
    ],
)
def test_a_new_dataflow_waits_for_its_inputs(inputs: tuple[Input, ...], said: str) -> None:
    """And says which."""
    with pytest.raises(Waiting, match=said):
        select_as_of(AsOfRequest(inputs))


def test_a_time_that_is_gone_is_refused() -> None:
    """With the time from which on it could be read."""
    with pytest.raises(Rejected, match="from 10 on"):
        select_as_of(AsOfRequest((shard(10, 100),), requested=Time(9)))


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
