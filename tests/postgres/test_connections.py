"""Connections over TCP: TLS, credentials that change, and connections that stand still, through toxiproxy."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from tests.authorities import Authority, Pair
from tests.dialects.postgres import Postgres, running
from tests.e2e.failures.network_faults import Proxy, toxiproxy
from tests.ports import free_port
from tests.postgres.databases import (
    CREDENTIALS,
    LOGICAL,
    Database,
    History,
    check,
    ingested_rows,
    ingester,
    source_of,
    tick,
)
from tests.postgres.test_crash_processes import finish, ticked
from tests.waiting import until
from tidemark_persist import open_shard
from tidemark_protocol.plan.ingestion import PostgresSource, PostgresTable
from tidemark_replica.storage.errors import IngestionError
from tidemark_replica.storage.ingester import Ingester
from tidemark_replica.storage.postgres import connection, source
from tidemark_replica.storage.postgres.catalogue import printed_types
from tidemark_replica.storage.postgres.connection import Upstream
from tidemark_replica.storage.postgres.contents import copied_rows, snapshot
from tidemark_replica.storage.postgres.inspect import tables_of

B = PostgresTable("b", "public", "b", ("k",))
TEN_TYPES = [16, 17, 20, 23, 25, 701, 1007, 1082, 1184, 1700]
AUTHORITY, OTHER_AUTHORITY = Authority.named("databases"), Authority.named("others")
RIGHT, WRONG = "a-right-password", "a-wrong-password"
HBA = """
local all all trust
hostssl all certified 127.0.0.1/32 cert
hostssl all all 127.0.0.1/32 scram-sha-256
hostnossl all test 127.0.0.1/32 trust
"""

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def server(port: int) -> Iterator[Postgres]:
    """On TCP, too, with a certificate of AUTHORITY for 127.0.0.1; it demands TLS of all but `test`."""
    with running(*LOGICAL, "listen_addresses=127.0.0.1", port=port) as started:
        data = started.folder / "data"
        own = AUTHORITY.server("127.0.0.1")
        for name, content in (("crt", own.certificate), ("key", own.key), ("ca", AUTHORITY.pair.certificate)):
            file = data / f"server.{name}"
            file.write_bytes(content)
            file.chmod(0o600)
            if os.getuid() == 0:
                shutil.chown(file, "postgres")
        (data / "pg_hba.conf").write_text(HBA)
        started.rows("alter system set ssl_ca_file = 'server.ca'")
        started.rows("alter system set ssl = on")
        started.rows("select pg_reload_conf()")
        started.rows("create role certified login replication superuser")
        started.rows(f"create role by_password login replication superuser password '{RIGHT}'")
        yield started


def over_tcp(database: Database, port: int, ssl_mode: str = "disable", **more: Any) -> PostgresSource:
    """The table `b`, at 127.0.0.1."""
    return replace(database.spec(B), host="127.0.0.1", port=port, ssl_mode=ssl_mode, **more)


def secret(user: str, authority: Authority = AUTHORITY, pair: Pair | None = None, **more: str) -> dict[str, str]:
    entries = {"username": user, "ca.crt": authority.pair.certificate.decode(), **more}
    return entries if pair is None else entries | {"tls.crt": pair.certificate.decode(), "tls.key": pair.key.decode()}


def of_client(authority: Authority = AUTHORITY, name: str = "certified") -> dict[str, str]:
    return secret("certified", pair=authority.client(name))


REFUSED = {
    "another authority": (secret("by_password", OTHER_AUTHORITY, password=RIGHT), "certificate verify failed"),
    "wrong password": (secret("by_password", password=WRONG), "password authentication failed"),
    "no such user": (secret("nobody", password=WRONG), "password authentication failed"),
    "no client certificate": (secret("certified", password=""), "requires a valid client certificate"),
    "a client of another authority": (of_client(OTHER_AUTHORITY), "unknown ca|no pg_hba.conf|certificate"),
    "a client of another name": (of_client(name="somebody"), "certificate authentication failed"),
}


def test_verify_full(database: Database, port: int) -> None:
    """The server proves that it is the one that was named; the client by a password, or by a certificate."""
    spec = over_tcp(database, port, "verify-full")
    for right in (secret("by_password", password=RIGHT), of_client()):
        assert [table.name for table in tables_of(spec, lambda right=right: right)] == ["b"]  # type: ignore[misc]
    for what, (wrong, message) in REFUSED.items():
        with pytest.raises(IngestionError, match=message) as refused:
            tables_of(spec, lambda wrong=wrong: wrong)  # type: ignore[misc]
        assert WRONG not in str(refused.value), what
    named = replace(spec, host="localhost")
    with pytest.raises(IngestionError, match='does not match host name "localhost"'):
        tables_of(named, lambda: secret("by_password", password=RIGHT))


def test_a_replication_connection_has_the_same_tls(database: Database, port: int) -> None:
    spec = over_tcp(database, port, "verify-full")
    upstream = Upstream(spec, of_client)
    replication = upstream.replicate()
    assert replication.system().database == database.name
    replication.close()
    with pytest.raises(IngestionError, match="certificate verify failed"):
        Upstream(spec, lambda: secret("by_password", OTHER_AUTHORITY, password=RIGHT)).replicate()


def test_the_server_compiles_no_query_of_its_catalogue(database: Database) -> None:
    """By default it would: it takes the query for the printed types of ten columns for a large one."""
    with Upstream(database.spec(B), lambda: CREDENTIALS).connect() as connection:
        plan = connection.execute(f"explain (analyze) {printed_types._USED}", (TEN_TYPES,)).fetchall()
        assert not [line for (line,) in plan if "JIT" in line]
        assert connection.execute("show jit").fetchone() == ("off",)


def test_a_key_is_on_no_disk(database: Database, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed while it connects would leave it there."""
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    with Upstream(over_tcp(database, port, "verify-full"), of_client).connect() as connection:
        assert connection.execute("select current_user").fetchone() == ("certified",)


def test_credentials_change_while_it_runs(database: Database, port: int, tmp_path: Path) -> None:
    """Open connections stay; the next ones have the new password. Between both it fails, and names no password."""
    given = {"password": RIGHT}
    spec = over_tcp(database, port, "verify-full")

    def read() -> dict[str, str]:
        return secret("by_password", **given)

    one = with_credentials(tmp_path, spec, read)
    tick(one, 1000)
    tick(one, 1050)
    try:
        database.run("alter role by_password password 'another-password'", "insert into b values (1)")
        tick(one, 1100)
        database.run("select pg_terminate_backend(pid, 10000) from pg_stat_activity where usename = 'by_password'")
        with pytest.raises(IngestionError, match=r"terminating connection|closed the connection"):
            tick(one, 1200)
        source_of(one).close()
        one = with_credentials(tmp_path, spec, read)
        with pytest.raises(IngestionError, match="password authentication failed") as refused:
            tick(one, 1300)
        assert RIGHT not in str(refused.value)
        given["password"] = "another-password"
        source_of(one).close()
        one = with_credentials(tmp_path, spec, read)
        database.run("insert into b values (2)")
        read_to_the_end(one, tmp_path, 1400, 2)
        source_of(one).close()
    finally:
        database.run(f"alter role by_password password '{RIGHT}'")


def with_credentials(root: Path, spec: PostgresSource, credentials: Any) -> Ingester:
    one = ingester(root, spec, credentials=credentials)
    one.recover()
    return one


def read_to_the_end(one: Ingester, root: Path, time: int, rows: int) -> None:
    times = itertools.count(time, 100)

    def are_there() -> bool:
        tick(one, next(times))
        return ingested_rows(root, "b", int(open_shard(f"{root}/b").state().upper) - 1).total() == rows

    until(are_there)


def limit_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("CONNECT_SECONDS", "COMMAND_SECONDS", "SLOT_SECONDS", "STALLED_SECONDS"):
        monkeypatch.setattr(connection, limit, 1)
    monkeypatch.setattr(copied_rows, "COMMAND_SECONDS", 1)


@pytest.fixture
def proxy(port: int, tmp_path: Path) -> Iterator[Proxy]:
    with toxiproxy(tmp_path) as program:
        yield Proxy(program, "postgres", port)


def source_through(database: Database, proxy: Proxy, **more: Any) -> PostgresSource:
    return over_tcp(database, int(proxy.address.rsplit(":")[-1]), **more)


@pytest.mark.parametrize("moment", ["inspecting", "beginning", "copying", "ticking", "looking"])
def test_a_connection_that_stands_still_is_given_up(
    database: Database, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Nothing passes, and nobody is told. Afterwards it goes on."""
    spec, root = source_through(database, proxy), tmp_path / "shards"
    one = ingester(root, spec)
    one.recover()
    if moment in ("ticking", "looking"):
        tick(one, 1000)
        database.run("insert into b values (1)")
        tick(one, 1100)
    limit_waits(monkeypatch)
    if moment == "looking":
        monkeypatch.setattr(source, "LOOK_SECONDS", 0.0)
    if moment == "beginning":
        create = connection.Replication.create_slot

        def swallowed(self: connection.Replication, name: str, temporary: bool = False) -> tuple[int, str]:
            proxy.swallow()
            return create(self, name, temporary)

        monkeypatch.setattr(connection.Replication, "create_slot", swallowed)
    elif moment == "copying":
        database.run("insert into b select 10000000000000000 + g from generate_series(1, 400000) g")
        monkeypatch.setattr(copied_rows, "BLOCK_BYTES", 1 << 16)
        copied = copied_rows.copied_blocks

        def one_block(*arguments: Any) -> Iterator[bytes]:
            for block in copied(*arguments):
                yield block
                proxy.stand_still()

        monkeypatch.setattr(snapshot, "copied_blocks", one_block)
    else:
        proxy.swallow()
    began = monotonic()
    with pytest.raises(IngestionError):
        _wait_for_the_server(one, spec, moment)
    assert monotonic() - began < 30
    source_of(one).close()
    monkeypatch.undo()
    proxy.heal()
    database.run("delete from b where k > 2", "insert into b values (2)")
    one = ingester(root, spec)
    one.recover()
    for attempt in range(50):
        try:
            tick(one, 2000)
            break
        except IngestionError:  # the server has not noticed yet that the connection is gone
            assert attempt < 49
            sleep(0.3)
    read_to_the_end(one, root, 2100, 2 if moment in ("ticking", "looking") else 1)
    source_of(one).close()


def _wait_for_the_server(one: Ingester, spec: PostgresSource, moment: str) -> None:
    if moment == "inspecting":
        tables_of(spec, lambda: {"username": "test", "password": ""})
    elif moment == "ticking":
        stream = source_of(one)._stream
        assert stream is not None
        with source_of(one)._upstream.errors():
            for _ in range(1000):  # what was on its way before is read first
                stream.read(until=stream.sent + 1)
    else:
        tick(one, 1200)


def test_a_server_that_answers_is_waited_for(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has nothing to send for longer than the limit, and says so."""
    monkeypatch.setattr(connection, "STALLED_SECONDS", 3.0)
    one = ingester(tmp_path, database.spec(B))
    one.recover()
    tick(one, 1000)
    tick(one, 1100)
    stream = source_of(one)._stream
    assert stream is not None
    later = threading.Timer(5.0, lambda: database.run("insert into b select generate_series(1, 1000)"))
    began = monotonic()
    later.start()
    assert stream.read(until=stream.sent + (1 << 40)) is not None  # others write WAL, too, but not so much
    assert monotonic() - began > 3
    later.join()
    source_of(one).close()


def ingest_through_faults(
    database: Database, proxy: Proxy, root: Path, monkeypatch: pytest.MonkeyPatch, seed: int, seconds: float
) -> None:
    """A history through a proxy that gets slow, cuts connections, and stands still, at random. Meanwhile waits are
    short."""
    history = History(database.server, database.name, seed)
    spec = replace(database.spec(), host="127.0.0.1", port=int(proxy.address.rsplit(":")[-1]))
    draw, end, one, time = history.random, monotonic() + seconds, None, 1000
    faults = [
        proxy.heal,
        lambda: proxy.toxic("latency", "downstream", latency=100, jitter=50),
        lambda: proxy.toxic("bandwidth", "downstream", rate=draw.randrange(20, 500)),
        lambda: proxy.toxic("limit_data", "downstream", bytes=draw.randrange(100, 200_000)),
        lambda: proxy.toxic("slicer", "downstream", average_size=50, size_variation=20, delay=100),
        proxy.cut,
        proxy.swallow,
    ]
    with history.going_on(0.02), monkeypatch.context() as patch:
        limit_waits(patch)
        while monotonic() < end:
            proxy.heal()
            draw.choice(faults)()
            until = monotonic() + draw.random()
            while monotonic() < until:
                one, time = ticked(root, spec, one, time), time + 100
                sleep(0.02)
    proxy.heal()
    if one is not None:
        source_of(one).close()
    finish(root, spec)
    check(root, history.states)


def test_crash_connections_that_are_slow_cut_and_standing_still(
    database: Database, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest_through_faults(database, proxy, tmp_path / "shards", monkeypatch, 7, 4.0)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(4))
def test_crash_faulty_connections_for_long(
    database: Database, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    ingest_through_faults(database, proxy, tmp_path / "shards", monkeypatch, 100 + seed, 120.0)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_server_that_is_away_for_long(database: Database, proxy: Proxy, tmp_path: Path) -> None:
    """Two minutes, in which every attempt fails; its WAL is kept, and nothing is lost."""
    root, spec = tmp_path / "shards", source_through(database, proxy)
    one = ticked(root, spec, None, 1000)
    assert one is not None
    proxy.cut()
    for number in range(24):
        database.run(f"insert into b values ({number})")
        assert (one := ticked(root, spec, one, 1100 + number)) is None
        sleep(5.0)
    proxy.heal()
    one = ticked(root, spec, None, 5000)
    assert one is not None
    read_to_the_end(one, root, 5100, 24)
    source_of(one).close()
