"""Views of ledgers in PostgreSQL, Kafka and Delta, written and read all the time, while the database, the broker, the
ingester, the computing replica and the operator are killed in turn: each answer is a state that the ledger had, and
no reader goes back that may rely on it."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.authorities import Authority
from tests.dialects.postgres import Postgres
from tests.e2e.clients.test_pgwire import account, serving
from tests.e2e.sources.ledgers import DeltaLedger, KafkaLedger, Ledger, PostgresLedger, version_of
from tests.e2e.sources.secrecy import check_secrecy
from tests.e2e.system import System, new_namespace, running, wait_for
from tests.e2e.test_object_store import keep_secret
from tests.kafka.broker import Broker, broker
from tests.kafka.debezium.debezium_shop import server_on_tcp
from tests.kafka.test_kafka_security import set_password
from tidemark_devcluster.control_plane.control_plane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(3600)]

AUTHORITY = Authority.named("bank")
KILLS = 12
SEEDS = 3
ANSWER_SECONDS = 300
"""A query waits for a replica, and for a time, a minute each. One that takes longer than this hangs."""
AGAIN = {"57P03", "40001"}
"""SQLSTATEs after which a client asks again (docs/guides/psql.md)."""


class Reader:
    """Asks for a view again and again, in a thread of its own. `version`: of its last answer. `may_go_back`: as a query
    of an index may that is not strict, where replica and operator died (docs/limits.md)."""

    def __init__(
        self, options: Mapping[str, Any], view: str, ledger: Ledger, strict: bool, may_go_back: bool = False
    ) -> None:
        self._options, self._view, self._ledger, self._strict = options, view, ledger, strict
        self._may_go_back = may_go_back
        self.version, self.answers, self.refusals = -1, 0, Counter[str]()
        self.failures: list[BaseException] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._read, name=f"reader of {view}")

    @contextmanager
    def going_on(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._end.set()
            self._thread.join()

    def __repr__(self) -> str:
        found = f"{self._view} strict={self._strict}: {self.answers} answers, version {self.version}"
        return f"{found} of {self._ledger.version}, {dict(self.refusals)} {self.failures}"

    def _read(self) -> None:
        try:
            while not self._end.is_set():
                try:
                    with psycopg.connect(**self._options) as connection:
                        connection.execute(f"SET tidemark.strict = {'on' if self._strict else 'off'}".encode())
                        connection.execute(f"SET statement_timeout = '{ANSWER_SECONDS}s'".encode())
                        while not self._end.wait(0.1):
                            self._check(connection.execute(f'SELECT * FROM "{self._view}"'.encode()).fetchall())
                except psycopg.Error as error:
                    self.refusals[error.sqlstate or "connection"] += 1
                    if error.sqlstate not in AGAIN:
                        raise
        except BaseException as error:
            self.failures.append(error)

    def _check(self, rows: list[tuple[str, int, Any]]) -> None:
        found = {name: (accounts, int(total)) for name, accounts, total in rows}
        version, states = version_of(found), self._ledger.states
        assert len(found) == len(rows), f"a name twice: {rows}"
        assert version < len(states), f"version {version} was not written yet: {rows}"
        assert found == states[version], f"version {version} was {states[version]}, not {found}"
        assert version >= self.version or self._may_go_back, f"version {version} after {self.version}"
        self.version, self.answers = version, self.answers + 1


class Bank:
    """A system with an instance that ingests and one that computes, its upstreams, ledgers in them, and readers."""

    def __init__(self, system: System, server: Postgres, kafka: Broker, seed: int) -> None:
        self.system, self.draw, self.passwords = system, random.Random(seed), list[str]()
        self._server, self._kafka = server, kafka
        self.renew_passwords()
        self.kills: dict[str, Callable[[], None]] = {
            "database": lambda: (server.kill(), server.start())[1],
            "broker": lambda: (kafka.stop(0), kafka.start())[1],
            "ingester": lambda: system.kill_replica("ingest"),
            "replica": lambda: system.kill_replica("r1"),
            "operator": lambda: (system.kill_operator(), system.start_operator())[1],
            "passwords": self.renew_passwords,
        }
        self.ledgers: dict[str, Ledger] = {
            "postgres": PostgresLedger(server, seed),
            "kafka": KafkaLedger(kafka, seed),
            "delta": DeltaLedger(system.folder / "lake", seed, feed=bool(seed % 2)),
        }
        self.readers: list[Reader] = []

    def renew_passwords(self) -> None:
        """Of the database and of the broker: the old ones are refused before the new ones are in the Secrets."""
        self.passwords.append(f"password-{self.draw.getrandbits(64):x}")
        self._server.rows(f"alter role reader password '{self.passwords[-1]}'")
        set_password(self._kafka, self.passwords[-1])
        of_broker = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "ann",
            "sasl.password": self.passwords[-1],
            "ssl.ca.pem": AUTHORITY.pair.certificate.decode(),
        }
        keep_secret(self.system, "bank", {"username": "reader", "password": self.passwords[-1]})
        keep_secret(self.system, "kafka", of_broker)

    def apply(self, indexed: str) -> None:
        """Sources and views. `indexed`: the one whose view is an index, the others are materialized."""
        self._indexed = indexed
        for name, ledger in self.ledgers.items():
            ledger.step()
            self.system.apply("DataSource", name, {"instance": "ingest", "tick": "500ms", **ledger.source()})
            kind: dict[str, Any] = {"index": {"key": ["name"]}} if name == indexed else {"materializedView": {}}
            self.system.dataflow(f"{name}-totals", ledger.view(name), **kind)
        self.system.wait_hydrated(*(f"{name}-totals" for name in self.ledgers))

    @contextmanager
    def going_on(self, options: Mapping[str, Any]) -> Iterator[None]:
        """Ledgers are written and views read. At the end each reader has read the last state."""
        for name, ledger in self.ledgers.items():
            for strict in (False, True):
                back = name == self._indexed and not strict
                self.readers.append(Reader(options, f"{name}-totals", ledger, strict, back))
        with ExitStack() as reading:
            for reader in self.readers:
                reading.enter_context(reader.going_on())
            with ExitStack() as writing:
                for ledger in self.ledgers.values():
                    writing.enter_context(ledger.going_on())
                yield
            self.wait_for_readers({ledger: ledger.version for ledger in self.ledgers.values()})

    def wait_for_readers(self, versions: Mapping[Ledger, int]) -> None:
        """Waits until each reader has read what was written until then."""

        def have_read() -> bool:
            self.check_threads()
            return all(reader.version >= versions[reader._ledger] for reader in self.readers)

        wait_for("the readers", have_read, lambda: f"{self.readers}\n{self.system.log()}")

    def check_threads(self) -> None:
        assert not [ledger.failures for ledger in self.ledgers.values() if ledger.failures]
        assert not [reader for reader in self.readers if reader.failures], f"{self.readers}\n{self.system.log()}"

    def kill(self, count: int) -> None:
        """Each in turn, in an order that changes. A view whose replicas die while it hydrates is set aside: so
        views have been read before the replica is killed."""
        names = list[str]()
        while len(names) < count:
            names += self.draw.sample(sorted(self.kills), len(self.kills))
        for name in names[:count]:
            if name == "replica" or self.draw.random() < 0.5:
                self.wait_for_readers({ledger: ledger.version for ledger in self.ledgers.values()})
            time.sleep(self.draw.uniform(0.0, 3.0))
            self.check_threads()
            self.kills[name]()
            print(f"{time.monotonic():.1f} after {name}: {self.readers}", flush=True)

    def check_tables(self) -> None:
        """Each row of the ledgers' tables is there once."""
        for name, ledger in self.ledgers.items():
            for table, rows in ledger.contents().items():
                columns = {"owners": "id, name", "accounts": "id, owner, balance"}[table]
                columns = columns.replace("owner,", "name,") if name == "delta" else columns
                found = self.system.query(f"SELECT {columns} FROM {name}.{table}")["rows"]
                assert sorted(tuple(row.values()) for row in found) == rows, (name, table)


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
        system.base()
        storage = {"storage": {"location": system.location}, "sourceSecrets": ["bank", "kafka"]}
        system.apply("ComputeInstance", "ingest", storage)
        limits = {"resources": {"limits": {"cpu": 1, "memory": "1536Mi"}}}
        system.apply("ComputeReplica", "ingest", {"instance": "ingest", **limits})
        yield Bank(system, server, kafka, seed)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_crash_each_answer_is_a_state_of_the_ledger(control_plane: ControlPlane, tmp_path: Path, seed: int) -> None:
    with bank(control_plane, tmp_path, seed) as one:
        one.apply(indexed=sorted(one.ledgers)[seed % 3])
        token = account(one.system, "reader")
        with serving(one.system, tmp_path) as options:
            given = {**options, "password": token}
            wait_for("the reader's right", lambda: may_read(given), one.system.log)
            with one.going_on(given):
                one.kill(KILLS)
        one.check_tables()
        check_secrecy(one.system, *one.passwords)
        for name in one.ledgers:
            one.system.wait_condition("datasource", name, "Ingesting")


def may_read(options: Mapping[str, Any]) -> bool:
    """The API server comes to know of a new binding a little later."""
    try:
        with psycopg.connect(**options) as connection:
            connection.execute('SELECT * FROM "delta-totals"')
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.CannotConnectNow):
        return False
    return True
