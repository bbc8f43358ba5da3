"""The operator's metrics: read on the event loop, from the fleet."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import cast

import pytest

from tests.controller.harness import INPUT, LAG, R1, TERM, at
from tests.metrics_client import Scraped, scrape
from tests.protocol.samples import SHARD, dataflow
from tidemark_operator import metrics
from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.controller.hydration.quarantine import HydrationStanding
from tidemark_operator.errors import OperatorError
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.fleet.fleet import Fleet
from tidemark_operator.fleet.instance_counters import SECONDS
from tidemark_operator.fleet.running_instance import InstanceListener
from tidemark_operator.kube.leadership import Leadership
from tidemark_protocol.ids import Time
from tidemark_protocol.messages.commands import IndexTarget, InstanceConfig, Peek
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.messages.responses import Frontiers
from tidemark_protocol.plan.map_filter_project import MapFilterProject

# between 256 and 512, and still there when it is told a while later
BEHIND_SECONDS = 300


class Deaf:
    """A listener that is told and does nothing."""

    def notice(self, *reported: object) -> None: ...

    def occupied(self, *reported: object) -> None: ...

    def standing(self, *asked: object) -> HydrationStanding:
        return HydrationStanding.CLEAR


def fleet() -> Fleet:
    """One instance, with a dataflow of two exports on one replica: one is behind, the other hydrates."""
    made = Fleet(cast(Leadership, None))
    made.listener = cast(InstanceListener, Deaf())
    instance = made.ensure("ns", InstanceConfig("default", "/data"))
    instance.core.shards.register(INPUT, SHARD.location, LAG)
    instance.core.shards.observe(INPUT, at(500), at(0))
    instance.core.create(Dataflow("ns/d", dataflow("d", 300), LAG), TERM)
    instance.core.connect(R1, 1, now_ms())
    instance.core.recorded(R1, instance.core.occupants(R1) or ())
    instance.take(R1, 1)
    index, _ = dataflow("d").export_ids
    upper = at(now_ms() - BEHIND_SECONDS * 1000)
    instance.received(R1, 1, [Frontiers(index, upper, upper, upper)])
    instance.maintain()
    instance.traffic.sent_bytes, instance.traffic.connect_seconds = 700, 1.5
    instance.counts.peeks.add(0.01, "rows")
    instance.counts.peeks.add(200.0, "canceled")
    return made


def test_a_scrape_has_every_metric() -> None:
    """Gauges as of now, counters since the beginning, lag in buckets of powers of two."""

    async def scraped() -> Scraped:
        there = fleet()
        return await asyncio.to_thread(scrape, metrics.serve(lambda: metrics.metrics(there, Registry()), 0))

    value = partial(asyncio.run(scraped()).value, namespace="ns", instance="default")
    assert value("tidemark_controller_dataflows") == 1
    assert value("tidemark_controller_collections", hydrated="true") == 1
    assert value("tidemark_controller_collections", hydrated="false") == 1
    assert value("tidemark_controller_commands_total", kind="Schedule") == 2
    assert value("tidemark_controller_responses_total", kind="Frontiers") == 1
    assert value("tidemark_controller_peek_results_total", result="canceled") == 1
    assert value("tidemark_controller_command_bytes_total") == 700
    assert value("tidemark_controller_response_bytes_total") == 0
    assert value("tidemark_controller_replica_connect_seconds_total") == 1.5
    assert value("tidemark_dataflow_wallclock_lag_seconds_bucket", le="256.0") == 0
    assert value("tidemark_dataflow_wallclock_lag_seconds_bucket", le="512.0") == 1
    assert value("tidemark_dataflow_wallclock_lag_seconds_count") == 1


def test_a_port_that_is_taken_is_named() -> None:
    """The operator does not start without what was asked for."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()

        async def serve() -> None:
            metrics.serve(list, taken.getsockname()[1])

        with pytest.raises(OperatorError, match=r"metrics on 127\.0\.0\.1, port"):
            asyncio.run(serve())


def test_peeks_are_counted_by_outcome() -> None:
    """Rows, an error, and an asker who gave up."""
    (instance,) = fleet().all()
    assert [at for at, count in enumerate(instance.counts.peeks.buckets) if count] == [1, len(SECONDS)]
    index, _ = dataflow("d").export_ids
    upper = instance.core.dataflows.collections_of("ns/d")[0].write
    assert upper is not None
    assert upper.time is not None

    async def ask(uuid: str, time: int) -> None:
        peek = Peek(uuid, IndexTarget(index), Time(time), MapFilterProject(()), Finishing(), ())
        asking = asyncio.create_task(instance.answers.peek(peek))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])

    asyncio.run(ask("given up", upper.time - 1))
    asyncio.run(ask("too old", 0))
    assert instance.counts.peeks.results == {"rows": 1, "canceled": 2, "error": 1}
