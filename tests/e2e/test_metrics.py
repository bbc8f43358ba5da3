"""The operator's metrics while replicas connect, stop, answer and end: a real replica behind toxiproxy."""

from __future__ import annotations

import time
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.failures.fleet import Fleet
from tests.e2e.failures.remote_replicas import Data, Remote
from tests.metrics_client import scrape
from tests.replica.process import wait_until
from tests.waiting import BOUND
from tidemark_operator.controller.hydration.quarantine import HydrationPolicy
from tidemark_operator.controller.replicas import replica_connection
from tidemark_protocol.messages.responses import PeekError, PeekRows

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.broad]

AT_ONCE, WAITING = HydrationPolicy.concurrency, 3
MOST_PEEKS, KEYS = 200, range(10_000)


class MetricsReader:
    """By the operator, now: values by what their names end in."""

    def __init__(self, fleet: Fleet) -> None:
        self._port = fleet.serve_metrics()

    def __call__(self, name: str, **labels: str) -> float:
        return self.together((name, labels))[0]

    def together(self, *asked: tuple[str, dict[str, str]]) -> list[float]:
        """Several values of one moment."""
        page = scrape(self._port)
        of = {"namespace": "ns", "instance": "default"}
        return [page.value(f"tidemark_controller_{name}", **of, **labels) for name, labels in asked]


def test_connections_are_told(fleet: Fleet, r1: Remote, tmp_path: Path) -> None:
    """A replica that there is to be, and whether it answers."""
    scrape = MetricsReader(fleet)
    assert (scrape("replicas"), scrape("connected_replicas"), scrape("replica_connects_total")) == (0, 0, 0)
    fleet.attach("r1", r1.proxy.address)
    assert (scrape("replicas"), scrape("connected_replicas"), scrape("replica_connects_total")) == (1, 1, 1)
    r1.proxy.cut()
    wait_until(lambda: scrape("connected_replicas") == 0)
    assert scrape("replicas") == 1
    r1.proxy.heal()
    wait_until(lambda: scrape("connected_replicas") == 1)
    assert scrape("replica_connects_total") == 2


def test_the_commands_for_a_new_replica_are_counted(fleet: Fleet, r1: Remote, tmp_path: Path) -> None:
    """It follows what is there: each dataflow, and commands of it."""
    scrape = MetricsReader(fleet)
    assert scrape("history_dataflows") == 0
    bare = scrape("history_commands")
    fleet.attach("r1", r1.proxy.address)
    data = Data(fleet, tmp_path)
    data.follows(r1)
    assert scrape("history_dataflows") == 1
    # it is created, its two exports are scheduled, and one of them may write
    assert scrape("history_commands") >= bare + 4
    other = data.another("other")
    assert scrape("history_dataflows") == 2
    wait_until(lambda: fleet.reached(other.export_ids[0], "r1") >= data.table.upper)
    # what is compacted meanwhile comes and goes
    assert scrape("history_commands") >= bare + 6
    wait_until(lambda: scrape("history_commands") == len(fleet.replay()))

    fleet.drop(other.name)
    assert scrape("history_dataflows") == 1
    wait_until(lambda: fleet.gone(other.name))
    wait_until(lambda: scrape("history_commands") == len(fleet.replay()))


def test_hydrations_that_wait_for_their_turn_are_told(fleet: Fleet, r1: Remote, tmp_path: Path) -> None:
    """A replica that is stopped hydrates nothing: so many have a slot, and the others wait until it goes on."""
    scrape = MetricsReader(fleet)
    fleet.attach("r1", r1.proxy.address)
    data = Data(fleet, tmp_path)
    data.follows(r1)
    assert scrape("hydrations_waiting") == 0
    wait_until(lambda: scrape("collections", hydrated="true") == len(data.dataflow.export_ids))
    r1.pause()
    others = [data.another(f"other-{n}") for n in range(AT_ONCE + WAITING)]
    wait_until(lambda: scrape("hydrations_waiting") == WAITING)
    assert scrape("collections", hydrated="false") == len(others)

    r1.resume()
    wait_until(lambda: scrape("hydrations_waiting") == 0)
    everything = len(data.dataflow.export_ids) + len(others)
    wait_until(lambda: scrape("collections", hydrated="true") == everything)
    assert scrape("collections", hydrated="false") == 0


def test_queues_and_peeks_are_told_of_a_replica_that_takes_nothing(
    fleet: Fleet, r1: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large peeks go on their way until it has no room for more, and wait here then. All are answered once it goes
    on, and took at least as long as it was stopped."""
    monkeypatch.setattr(replica_connection, "KEEPALIVE", ())  # the stopped replica keeps its connection
    scrape = MetricsReader(fleet)
    count, total = partial(scrape, "peek_seconds_count"), partial(scrape, "peek_seconds_sum")
    fleet.attach("r1", r1.proxy.address)
    data = Data(fleet, tmp_path)
    data.follows(r1)
    answered, quick = scrape("peek_results_total", result="rows"), total()
    assert answered == count() >= 1

    sent_before = scrape("commands_total", kind="Peek")

    r1.pause()
    began, asked, waiting = time.monotonic(), list[Future[PeekRows | PeekError]](), 0.0
    while not waiting:
        assert len(asked) < MOST_PEEKS, "a replica that is stopped takes commands without end"
        asked.append(fleet.ask(data.index, data.table.upper - 1, keys=KEYS))
        wait_until(lambda: scrape("peeks") == len(asked))
        queued, sent = scrape.together(("queued_commands", {}), ("commands_total", {"kind": "Peek"}))
        waiting = len(asked) - (sent - sent_before)
        assert queued >= waiting, "what is not sent is queued"
    assert count() == answered
    stopped = time.monotonic() - began
    r1.resume()

    assert all(isinstance(each.result(BOUND), PeekRows) for each in asked)
    assert scrape("peeks") == 0
    wait_until(lambda: scrape("queued_commands") == 0)
    assert scrape("peek_results_total", result="rows") == count() == answered + len(asked)
    assert total() - quick >= stopped
    assert scrape("peek_seconds_bucket", le="+Inf") == count()
