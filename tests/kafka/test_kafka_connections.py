"""Connections to a broker that are slow, break, or stand still, through toxiproxy: a warning meanwhile, no part of a
read is bound, and at the end each record is there once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.failures.network_faults import Proxy, toxiproxy
from tests.kafka.broker import Broker, broker
from tests.kafka.topics import COLUMNS, Run, new_topic, produce, upper
from tests.schema_registry.registry import registry
from tests.storage.ingestion_samples import oks
from tests.waiting import until
from tidemark_protocol.plan.kafka import KafkaSource, KafkaTable
from tidemark_replica.storage.kafka import source
from tidemark_replica.storage.kafka.connection import REQUEST_SECONDS
from tidemark_replica.storage.schema_registry import RegistryAway, SchemaRegistry

BATCH = 300
"""Records of some 300 bytes each."""

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def ticks_until(run: Run, holds: Callable[[], object]) -> None:
    """Ticks until it holds. A tick without records is short, so their number would not bound a wait."""

    def ticked() -> object:
        run.tick()
        return holds()

    until(ticked)


class Way:
    """A broker and the only way that its ingester has to it."""

    def __init__(self, kafka: Broker, proxy: Proxy, root: Path) -> None:
        self.kafka, self.proxy, self.root, self.sent = kafka, proxy, root, 0
        self.topic = new_topic(kafka)
        table = KafkaTable("t", self.topic, "json", COLUMNS)
        self.spec = KafkaSource((f"127.0.0.1:{kafka.proxied_port}",), (table,))

    def more(self) -> None:
        """Another batch of records, by a way of their own."""
        ids = range(self.sent, self.sent + BATCH)
        produce(self.kafka, self.topic, *({"id": i, "name": f"{i}" * 100} for i in ids))
        self.sent += BATCH

    def is_whole(self) -> bool:
        """All records are there. The records that are there are the first ones, each once."""
        found = sorted(row[0] for row in oks(self.root, "t"))
        assert found == list(range(len(found)))
        return len(found) == self.sent

    def goes_on_without(self, run: Run) -> None:
        """The ingester says that the brokers are away, and its tables' uppers move on with what they have."""
        ticks_until(run, lambda: run.source.warning().startswith("BrokersAway: "))
        before, rows = upper(self.root, "t"), oks(self.root, "t")
        self.more()
        run.tick(2)
        assert upper(self.root, "t") > before
        assert oks(self.root, "t") == rows
        assert not run.source.stop_reasons()


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Proxy]]:
    """A broker that advertises a proxy to those who come through it."""
    folder, made = tmp_path_factory.mktemp("behind"), list[Proxy]()

    def through(port: int) -> int:
        made.append(Proxy(program, f"kafka-{port}", port))
        return int(made[-1].address.rpartition(":")[2])

    with toxiproxy(folder) as program, broker(folder / "kafka", behind=through) as kafka:
        yield kafka, made[-1]


@pytest.fixture
def way(behind: tuple[Broker, Proxy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Way]:
    monkeypatch.setattr(source, "LOOK_SECONDS", REQUEST_SECONDS + 1)  # a look drops the question before it
    yield Way(*behind, tmp_path)
    behind[1].heal()


SLOW: dict[str, Callable[[Proxy], Any]] = {
    "latency": lambda proxy: proxy.toxic("latency", "downstream", latency=200, jitter=100),
    "bandwidth": lambda proxy: proxy.toxic("bandwidth", "downstream", rate=40),
    "slices": lambda proxy: proxy.toxic("slicer", "downstream", average_size=500, size_variation=200, delay=1000),
}


@pytest.mark.parametrize("kind", SLOW)
def test_a_slow_connection_is_read_to_the_end(way: Way, kind: str) -> None:
    SLOW[kind](way.proxy)
    way.more()
    with Run(way.root, way.spec) as run:
        ticks_until(run, lambda: not run.source.unbound_tables())
        for _ in range(2):
            way.more()
            ticks_until(run, way.is_whole)
        assert not run.source.stop_reasons()


def test_a_flapping_connection_loses_and_doubles_nothing(way: Way) -> None:
    """It is cut and joined; other times it ends after some bytes, in the middle of an answer."""
    way.more()
    with Run(way.root, way.spec) as run:
        ticks_until(run, lambda: not run.source.unbound_tables() and way.is_whole())
        for amount in (1000, 20_000):
            way.proxy.cut()
            way.goes_on_without(run)
            way.proxy.toxic("limit_data", "downstream", bytes=amount)
            way.proxy.join()
            for _ in range(4):
                run.tick()
                way.is_whole()
            way.proxy.heal()
            ticks_until(run, way.is_whole)
        ticks_until(run, lambda: not run.source.warning())


@pytest.mark.parametrize("how", ["swallow", "stand_still"])
def test_a_half_open_connection_is_given_up(way: Way, how: str) -> None:
    """Nothing passes, and nobody is told. The same process goes on later, as does another one."""
    way.more()
    with Run(way.root, way.spec) as run:
        ticks_until(run, lambda: not run.source.unbound_tables() and way.is_whole())
        getattr(way.proxy, how)()
        way.goes_on_without(run)
        way.proxy.heal()
        ticks_until(run, way.is_whole)
        ticks_until(run, lambda: not run.source.warning())
    way.more()
    with Run(way.root, way.spec) as run:
        ticks_until(run, way.is_whole)


def test_a_registry_that_is_half_open_is_given_up(tmp_path: Path) -> None:
    """The client asks again later; what it knows it does not ask for."""
    with registry() as server, toxiproxy(tmp_path) as program:
        first, second = (server.register(name, '"string"') for name in ("a", "b"))
        proxy = Proxy(program, "registry", int(server.url.split(":")[2].split("/")[0]))
        one = SchemaRegistry(server.url.replace(server.url.split("/")[2], proxy.address), None)
        until(lambda: knows(one, first))
        proxy.swallow()
        with pytest.raises(RegistryAway, match="TimeoutError"):
            one.by_id(second)
        assert one.by_id(first).text == '"string"'
        with pytest.raises(RegistryAway, match="TimeoutError"):
            one.by_id(second)
        proxy.heal()
        until(lambda: knows(one, second))


def knows(one: SchemaRegistry, id: int) -> bool:
    """Whether the client gives the schema; it asks for nothing for a moment after the registry was away."""
    try:
        return one.by_id(id).text == '"string"'
    except RegistryAway:
        return False
