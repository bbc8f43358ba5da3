"""Times that a stream of Spark holds between its micro-batches: the driver's part, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.waiting import until
from tidemark import held_times
from tidemark.spark.change_feed import ChangeFeed
from tidemark.spark.options import ReadOptions


@pytest.fixture
def feed(gateway: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChangeFeed]:
    monkeypatch.setattr(held_times, "RENEW_SECONDS", 0.05)
    options = ReadOptions.of({**gateway[1], "relation": "counts", "readChangeFeed": "true"})
    made = ChangeFeed(options, None)
    yield made
    made.stop()


def held(history: Any) -> set[int]:
    return {time for time, _ in history.leases.values()}


def test_a_stream_holds_the_time_up_to_which_it_has_read(gateway: Any, feed: ChangeFeed) -> None:
    """And the one up to which it reads next; earlier ones go. The end of the stream lets go of all."""
    history, _ = gateway
    first = feed.latestOffset(feed.initialOffset(), None)
    assert held(history) == {1000}

    history.upper = 2001
    second = feed.latestOffset(first, None)
    assert (first["time"], second["time"]) == (1000, 2000)
    assert held(history) == {1000, 2000}

    history.upper = 3001
    third = feed.latestOffset(second, None)
    until(lambda: held(history) == {2000, 3000})
    feed.latestOffset(third, None)
    until(lambda: held(history) == {3000})
    feed.stop()
    assert not history.leases


def test_what_is_held_is_renewed_while_no_micro_batch_comes(gateway: Any, feed: ChangeFeed) -> None:
    """Also where the gateway forgot it, as another leader has."""
    history, _ = gateway
    feed.latestOffset(feed.initialOffset(), None)
    until(lambda: history.renewed.count(1000) >= 3)
    history.leases.clear()
    until(lambda: held(history) == {1000})


def test_a_stream_that_begins_again_holds_the_time_of_its_checkpoint(gateway: Any, feed: ChangeFeed) -> None:
    """Where it is there still; where it is not, the micro-batch says so, and the driver does not."""
    history, _ = gateway
    history.upper = 2001
    assert feed.latestOffset({"time": 1500, "reads": "first"}, None)["time"] == 2000
    assert held(history) == {1500, 2000}
    feed.stop()

    history.since = 1800
    feed._held = None
    assert feed.latestOffset({"time": 1500, "reads": "first"}, None)["time"] == 2000
    assert held(history) == {2000}


def test_a_time_that_is_gone_keeps_no_other_from_being_renewed(gateway: Any, feed: ChangeFeed) -> None:
    """The earlier one of two goes while a micro-batch runs."""
    history, _ = gateway
    first = feed.latestOffset(feed.initialOffset(), None)
    history.upper = 2001
    feed.latestOffset(first, None)
    assert held(history) == {1000, 2000}
    history.since = 1500
    before = history.renewed.count(2000)
    until(lambda: history.renewed.count(2000) >= before + 3)


def test_polls_at_one_time_take_one_lease(gateway: Any, feed: ChangeFeed) -> None:
    """Spark asks for the newest time again and again while there is nothing new."""
    history, _ = gateway
    first = feed.latestOffset(feed.initialOffset(), None)
    seen = set(history.leases)
    for _ in range(20):
        feed.latestOffset(first, None)
        seen |= set(history.leases)
    assert len(seen) <= 2, "of the first offset, and of the query that tells the relations"


def test_an_older_operator_holds_nothing(gateway: Any, feed: ChangeFeed) -> None:
    """It names no relations. The stream goes on as it did."""
    history, _ = gateway
    history.relations = []
    first = feed.latestOffset(feed.initialOffset(), None)
    assert feed.latestOffset(first, None)["time"] == 1000
    assert not history.renewed


def test_a_time_that_is_gone_costs_no_connection(gateway: Any, feed: ChangeFeed) -> None:
    """The thread keeps its own while the gateway refuses."""
    history, _ = gateway
    first = feed.latestOffset(feed.initialOffset(), None)
    history.upper = 2001
    feed.latestOffset(first, None)
    until(lambda: history.renewed.count(2000) >= 2)
    assert feed._held is not None
    connect, made = feed._held._connect, list[int]()
    feed._held._connect = lambda: (made.append(1), connect())[1]
    history.since = 1500
    before = history.renewed.count(2000)
    until(lambda: history.renewed.count(2000) >= before + 4)
    assert not made
