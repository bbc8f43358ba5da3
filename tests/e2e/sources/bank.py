"""A bank whose ledgers in PostgreSQL, Kafka and Delta are written, and their views read, all the time, while database,
broker, ingester, computing replica and operator are killed.

    in turn      each kind once, the next one a moment later
    at once      all kinds at one moment
    again        all kinds at one moment, and each once more while they start

Each answer is a state that the ledger had, and no reader goes back that may rely on it. After each round all readers
have read a transaction that began after the round's last death.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.authorities import Authority
from tests.dialects.postgres import Postgres
from tests.e2e.clients.test_pgwire import account, serving
from tests.e2e.sources.ledgers import DeltaLedger, KafkaLedger, Ledger, PostgresLedger
from tests.e2e.sources.readers import QueryReader, Reader
from tests.e2e.sources.secrecy import check_secrecy
from tests.e2e.system import System, new_namespace, running, wait_for
from tests.e2e.test_object_store import keep_secret
from tests.kafka.broker import Broker, broker
from tests.kafka.debezium.debezium_shop import server_on_tcp
from tests.kafka.test_kafka_security import set_password
from tidemark_devcluster.control_plane.control_plane import ControlPlane

AUTHORITY = Authority.named("bank")
KINDS = ("broker", "database", "ingester", "operator", "replica")
PAUSE_SECONDS = 3.0
"""The longest pause between two deaths: the moment of a death is at random."""


INDEX = {"index": {"key": ["name"]}}


class Bank:
    """A system with an instance that ingests and one that computes, its upstreams, ledgers in them, and readers.
    `deaths`: how often a process of each kind was killed."""

    def __init__(self, system: System, server: Postgres, kafka: Broker, seed: int) -> None:
        self.system, self.draw, self.passwords = system, random.Random(seed), list[str]()
        self.server, self.kafka = server, kafka
        self.renew_passwords()
        self.deaths = Counter[str]()
        self.ledgers: dict[str, Ledger] = {
            "postgres": PostgresLedger(server, seed),
            "kafka": KafkaLedger(kafka, seed),
            "delta": DeltaLedger(system.folder / "lake", seed, feed=bool(seed % 2)),
        }
        self.readers: Sequence[Reader] = ()

    def renew_passwords(self) -> None:
        """Renew the passwords of the database and of the broker: the old ones are refused before the new ones are in
        the Secrets."""
        self.passwords.append(f"password-{self.draw.getrandbits(64):x}")
        self.server.rows(f"alter role reader password '{self.passwords[-1]}'")
        set_password(self.kafka, self.passwords[-1])
        of_broker = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "ann",
            "sasl.password": self.passwords[-1],
            "ssl.ca.pem": AUTHORITY.pair.certificate.decode(),
        }
        keep_secret(self.system, "bank", {"username": "reader", "password": self.passwords[-1]})
        keep_secret(self.system, "kafka", of_broker)

    def apply(self, exports: Mapping[str, Mapping[str, Any]]) -> None:
        """Sources and views; `exports`: how the view of each ledger is exported."""
        for name, ledger in self.ledgers.items():
            ledger.step()
            self.system.apply("DataSource", name, {"instance": "ingest", "tick": "500ms", **ledger.source()})
            self.system.dataflow(f"{name}-totals", ledger.view(name), **exports[name])
        self.system.wait_hydrated(*(f"{name}-totals" for name in self.ledgers))

    @contextmanager
    def going_on(self, readers: Sequence[Reader]) -> Iterator[None]:
        """Ledgers are written and views read. At the end each reader has read the last state."""
        self.readers = readers
        with ExitStack() as reading:
            for reader in self.readers:
                reading.enter_context(reader.going_on())
            with ExitStack() as writing:
                for ledger in self.ledgers.values():
                    writing.enter_context(ledger.going_on())
                yield
            self.wait_for_readers({ledger: ledger.version for ledger in self.ledgers.values()})

    def survive(self, readers: Sequence[Reader], kill: Kill, rounds: int) -> None:
        """Rounds of deaths. Every second one begins while the passwords are new."""
        with self.going_on(readers):
            for number in range(rounds):
                answers = [reader.answers for reader in readers]
                if number % 2 == 0:
                    self.renew_passwords()
                kill(self)
                self.recover()
                assert all(reader.answers > before for reader, before in zip(readers, answers, strict=True)), readers

    def wait_for_readers(self, versions: Mapping[Ledger, int]) -> None:
        """Waits until each reader has read what was written until then."""

        def have_read() -> bool:
            self.check_threads()
            return all(reader.version >= versions[reader.ledger] for reader in self.readers)

        wait_for("the readers", have_read, lambda: f"{self.readers}\n{self.system.log()}")

    def check_threads(self) -> None:
        assert not [ledger.failures for ledger in self.ledgers.values() if ledger.failures]
        assert not [reader for reader in self.readers if reader.failures], f"{self.readers}\n{self.system.log()}"

    def kill_in_turn(self) -> None:
        for kind in self._in_any_order():
            time.sleep(self.draw.uniform(0.0, PAUSE_SECONDS))
            self._kill(kind)
            self._launch(kind)

    def kill_at_once(self) -> None:
        for kind in self._in_any_order():
            self._kill(kind)
        for kind in self._in_any_order():
            self._launch(kind)

    def kill_again(self) -> None:
        """A view whose replicas die three times while it hydrates is set aside: they die twice at most before it has
        been read again."""
        self.kill_at_once()
        self.kill_in_turn()

    def recover(self) -> None:
        """Waits until each reader has read a transaction that began after the last death, and nothing is suspected of
        having caused it."""
        self.wait_for_readers({ledger: ledger.version + 1 for ledger in self.ledgers.values()})
        wait_for("the views to be cleared", lambda: not self._suspects(), self.system.log)
        self.server.wait()
        self.kafka.wait()

    def _suspects(self) -> list[Any]:
        found = [self.system.get("dataflow", f"{name}-totals")["status"].get("suspects") for name in self.ledgers]
        hydrating = self.system.get("computereplica", "r1")["status"].get("hydrating") or {}
        return [*filter(None, found), *hydrating.get("dataflows", ())]

    def _in_any_order(self) -> list[str]:
        return self.draw.sample(KINDS, len(KINDS))

    def _kill(self, kind: str) -> None:
        """A process that runs: those that start by themselves are waited for."""
        self.check_threads()
        kills: dict[str, Callable[[], None]] = {
            "broker": self.kafka.kill,
            "database": self.server.kill,
            "ingester": lambda: self.system.kill_replica("ingest"),
            "operator": self._kill_operator,
            "replica": self.system.kill_replica,
        }
        kills[kind]()
        self.deaths[kind] += 1
        print(f"{time.monotonic():.1f} {kind} is dead: {self.readers}", flush=True)

    def _kill_operator(self) -> None:
        assert self.system.operator is not None
        assert self.system.operator.poll() is None, f"the operator ended: {self.system.log()}"
        self.system.kill_operator()

    def _launch(self, kind: str) -> None:
        """Starts it, where no process of the system does. Nobody waits for it."""
        if kind == "broker":
            self.kafka.launch()
        elif kind == "database":
            self.server.launch()
        elif kind == "operator":
            self.system.forget_failures()
            self.system.launch_operator()

    def check_end(self, each: int) -> None:
        """Check that the deaths of each kind are as many, each row is there once, no password is anywhere, and each
        source goes on."""
        assert self.deaths == dict.fromkeys(KINDS, each)
        self.check_tables()
        check_secrecy(self.system, *self.passwords)
        for name in self.ledgers:
            self.system.wait_condition("datasource", name, "Ingesting")

    def check_tables(self) -> None:
        """Each row of the ledgers' tables is there once."""
        for name, ledger in self.ledgers.items():
            for table, rows in ledger.contents().items():
                columns = {"owners": "id, name", "accounts": "id, owner, balance"}[table]
                columns = columns.replace("owner,", "name,") if name == "delta" else columns
                found = self.system.query(f"SELECT {columns} FROM {name}.{table}")["rows"]
                assert sorted(tuple(row.values()) for row in found) == rows, (name, table)


Kill = Callable[[Bank], None]
"""A round of deaths."""


@contextmanager
def server_with_passwords() -> Iterator[Postgres]:
    """On TCP it asks for the password of `reader`."""
    with server_on_tcp() as server:
        hba = server.folder / "data" / "pg_hba.conf"
        hba.write_text("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
        server.rows("select pg_reload_conf()")
        server.rows("create role reader login replication superuser")
        yield server


@contextmanager
def bank(plane: ControlPlane, folder: Path, seed: int) -> Iterator[Bank]:
    with (
        server_with_passwords() as server,
        broker(folder / "kafka", AUTHORITY.server("127.0.0.1")) as kafka,
        new_namespace(plane) as namespace,
        running(plane, namespace, folder) as system,
    ):
        system.base(sourceSecrets=["bank", "kafka"])
        storage = {"storage": {"location": system.location}, "sourceSecrets": ["bank", "kafka"]}
        system.apply("ComputeInstance", "ingest", storage)
        limits = {"resources": {"limits": {"cpu": 1, "memory": "1536Mi"}}}
        system.apply("ComputeReplica", "ingest", {"instance": "ingest", **limits})
        yield Bank(system, server, kafka, seed)


def survive(plane: ControlPlane, folder: Path, seed: int, kill: Kill, rounds: int, each: int) -> None:
    """Rounds of deaths, `each` of each kind of process in all. Psql asks for the views: one of them is an index."""
    with bank(plane, folder, seed) as one:
        indexed = sorted(one.ledgers)[seed % 3]
        one.apply({name: INDEX if name == indexed else {"materializedView": {}} for name in one.ledgers})
        token = account(one.system, "reader")
        with serving(one.system, folder) as options:
            given = {**options, "password": token}
            wait_for("the reader's right", lambda: may_read(given), one.system.log)
            readers = [
                QueryReader(given, f"{name}-totals", ledger, strict, may_go_back=name == indexed and not strict)
                for name, ledger in one.ledgers.items()
                for strict in (False, True)
            ]
            one.survive(readers, kill, rounds)
        one.check_end(each)


def may_read(options: Mapping[str, Any]) -> bool:
    """The API server comes to know of a new binding a little later."""
    try:
        with psycopg.connect(**options) as connection:
            connection.execute('SELECT * FROM "delta-totals"')
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.CannotConnectNow):
        return False
    return True
