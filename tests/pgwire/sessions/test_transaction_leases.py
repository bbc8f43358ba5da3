"""BEGIN pins a time: what a transaction has read is kept at it, however long it takes, and no longer than it lasts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import psycopg
import pytest

from tests.controller.harness import LAG, at
from tests.gateway.registries import shard_of
from tests.pgwire.served import LISTS, NAMESPACE, TOKEN, Served, served
from tests.waiting import until
from tidemark.gateway.channel import _channel
from tidemark_operator.controller.frontiers import lease_book
from tidemark_operator.controller.frontiers.lease_book import LeaseBook
from tidemark_operator.fleet.clock import now_ms, steady_ms
from tidemark_pgwire import gateway
from tidemark_pgwire.errors import WireError
from tidemark_pgwire.session import transaction_lease
from tidemark_protocol.messages.responses import PeekError
from tidemark_protocol.pb import gateway_pb2 as pb
from tidemark_protocol.pb.gateway_pb2_grpc import GatewayStub

SELECT = "SELECT a FROM s.a"
FAILS = "RELEASE SAVEPOINT no_such"
TABLE = shard_of("s.a")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as made:
        yield made


def leases(server: Served) -> LeaseBook:
    book = server.running_fleet.leases(NAMESPACE)
    assert book is not None
    return book


def goes_on(server: Served, upper: int) -> int:
    """The table is complete below `upper`, and what nobody holds is compacted: from when on it is kept."""

    def advance() -> int:
        book = server.running_fleet.book(NAMESPACE)
        book.observe(TABLE.shard_id, at(upper), at(0))
        server.running_fleet.maintain_leases()
        shard = book.get(TABLE.shard_id)
        assert shard is not None
        shard.asked_at_ms = None
        for command in book.due_compactions(now_ms()):
            book.observe(command.id, at(upper), command.frontier)
        assert shard.readable is not None
        return shard.readable.since.encode()

    return server.loop.call(advance)


def begun(server: Served) -> psycopg.Connection[Any]:
    """A transaction that has read as of 499."""
    connection = server.connect()
    connection.execute("BEGIN")
    assert connection.execute(SELECT).fetchone() == (1,)
    return connection


def test_a_transaction_reads_at_its_time_when_the_read_policy_has_passed_it(server: Served) -> None:
    """The table is kept at it until COMMIT; a cursor reads at it, too."""
    with begun(server) as connection:
        assert goes_on(server, 2_000) == 499
        assert connection.execute(SELECT).fetchone() == (1,)
        connection.execute(f"DECLARE c CURSOR FOR {SELECT}")
        assert len(connection.execute("FETCH ALL FROM c").fetchall()) == 3
        assert server.answers.read == [499, 499, 499]
        connection.execute("COMMIT")
        until(lambda: not len(leases(server)))
        assert goes_on(server, 2_100) == 2_100 - LAG
        assert connection.execute(SELECT).fetchone() == (1,)
        assert server.answers.read[3:] == [2_099]


def test_without_a_lease_the_time_of_a_transaction_goes(server: Served) -> None:
    """An operator that grants none; the error has a name, and says what to do."""
    server.running_fleet._lease_ms = 0
    with begun(server) as connection:
        assert goes_on(server, 2_000) == 2_000 - LAG
        with pytest.raises(psycopg.Error, match="cannot be read at 499 any more") as failed:
            connection.execute(SELECT)
        assert failed.value.sqlstate == "72000"
        assert "ROLLBACK, and begin again" in (failed.value.diag.message_hint or "")


def test_an_idle_transaction_is_held_by_renewals_that_end_with_its_session(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than a lease lasts without them."""
    monkeypatch.setattr(transaction_lease, "RENEW_SECONDS", 0.05)
    monkeypatch.setattr(lease_book, "LEASE_MS", 1_000)
    connection = begun(server)
    (held,) = server.loop.call(lambda: list(leases(server).relations(now_ms())))
    first = held.lease.until_ms
    until(lambda: steady_ms() > first)
    assert goes_on(server, 2_000) == 499
    assert connection.execute(SELECT).fetchone() == (1,)

    connection.close()
    until(lambda: not len(leases(server)))


def test_a_lease_of_a_process_that_died_runs_out(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process renews its lease no more, so the operator ends it."""
    monkeypatch.setattr(transaction_lease, "RENEW_SECONDS", 1_000.0)
    monkeypatch.setattr(lease_book, "LEASE_MS", 500)
    with begun(server) as connection:
        until(lambda: goes_on(server, 2_000) == 2_000 - LAG)
        with pytest.raises(psycopg.Error, match="cannot be read at 499 any more"):
            connection.execute(SELECT)
        connection.execute("ROLLBACK")


def test_the_next_operator_is_told_what_a_transaction_holds(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the next renewal; until all had time for one it compacts nothing."""
    monkeypatch.setattr(transaction_lease, "RENEW_SECONDS", 0.05)
    with begun(server) as connection:
        server.restart_gateway(stands=True)
        assert goes_on(server, 2_000) == 100, "nothing before leases can be renewed"
        until(lambda: len(leases(server)))
        server.loop.call(server.running_fleet.go_on)
        assert goes_on(server, 2_000) == 499
        assert connection.execute(SELECT).fetchone() == (1,)
        connection.execute("COMMIT")


def test_a_transaction_whose_time_is_not_held_is_warned_and_goes_on(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, where there are too many leases."""
    monkeypatch.setattr(lease_book, "MAX_LEASES", 0)
    notices = list[tuple[Any, Any]]()
    with server.connect() as connection:
        connection.add_notice_handler(lambda notice: notices.append((notice.sqlstate, notice.message_primary)))
        connection.execute("BEGIN")
        for _ in range(2):
            assert connection.execute(SELECT).fetchone() == (1,)
        connection.execute("COMMIT")
    ((sqlstate, text),) = notices
    assert sqlstate == "01000"
    assert text.startswith("the time of this transaction is not held: 0 leases")


def test_statements_without_a_transaction_hold_nothing(server: Served) -> None:
    """Each reads at a time of its own. A transaction may read at an earlier time that it is told."""
    with server.connect() as connection:
        connection.execute(SELECT)
        assert not len(leases(server))
        connection.execute("SET tidemark.as_of = 450")
        connection.execute("BEGIN")
        connection.execute(SELECT)
        connection.execute("SET LOCAL tidemark.as_of = 440")
        connection.execute(SELECT)
        assert goes_on(server, 2_000) == 450, "one lease has one time"
        connection.execute("ROLLBACK")


def test_short_transactions_end_their_leases_together(server: Served) -> None:
    """Each has one of its own, and one call ends many."""
    calls = list[int]()
    end = server.gateway._leases.end
    server.gateway._leases.end = lambda ids: (calls.append(len(ids)), end(ids))[1]  # type: ignore[assignment, func-returns-value]
    with server.connect(autocommit=False) as connection:
        for _ in range(20):
            connection.execute(SELECT)
            connection.commit()
        until(lambda: sum(calls) == 20)
    assert not len(leases(server))
    assert len(calls) < 20


def test_a_first_query_that_fails_behind_a_savepoint_does_not_take_the_lease(server: Served) -> None:
    """The transaction has no time yet, so the next query chooses another one, which is held."""
    notices = list[str | None]()
    peek, failures = server.answers.peek, [PeekError("a row cannot be computed")]

    async def fails(asked: Any, target: Any) -> Any:
        return failures.pop() if failures else await peek(asked, target)

    server.answers.peek = fails  # type: ignore[method-assign]
    with server.connect() as connection:
        connection.add_notice_handler(lambda notice: notices.append(notice.message_primary))
        connection.execute("BEGIN")
        connection.execute("SAVEPOINT s")
        with pytest.raises(psycopg.Error):
            connection.execute(SELECT)
        connection.execute("ROLLBACK TO SAVEPOINT s")
        server.loop.call(lambda: server.running_fleet.book(NAMESPACE).observe(TABLE.shard_id, at(600), at(0)))
        assert connection.execute(SELECT).fetchone() == (1,)
        assert not notices
        assert goes_on(server, 2_000) == 599
        connection.execute("ROLLBACK")
        until(lambda: not len(leases(server)))


def ask(server: Served, request: pb.LeaseRequest) -> Any:
    with _channel(server.address) as made:
        stub = GatewayStub(made)  # type: ignore[no-untyped-call]
        return stub.Lease(request, metadata=(("authorization", f"Bearer {TOKEN}"),), timeout=60)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"as_of": 499, "relations": ["s.a"]}, None),
        ({"as_of": 50, "relations": ["s.a"]}, grpc.StatusCode.OUT_OF_RANGE),
        ({"as_of": 499, "relations": ["s.gone"]}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"as_of": -1, "relations": ["s.a"]}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"as_of": 499, "relations": ["s.a"], "id": ""}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"as_of": 499, "relations": ["s.a"], "namespace": "other"}, grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
def test_a_lease_is_granted_or_refused_by_name(
    server: Served, request_: dict[str, Any], code: grpc.StatusCode | None
) -> None:
    """A time that is gone, a relation that is, and what is none of both."""
    request = pb.LeaseRequest(**{"namespace": NAMESPACE, "id": "mine", **request_})
    if code is None:
        assert list(ask(server, request).relations) == ["s.a"]
        return
    with pytest.raises(grpc.RpcError) as refused:
        ask(server, request)
    assert refused.value.code() is code  # type: ignore[attr-defined]
    assert not len(leases(server))


def test_who_may_not_read_a_relation_holds_nothing_of_it(tmp_path: Path) -> None:
    """Though it knows the relation's id."""
    with served(tmp_path, LISTS) as server:
        with pytest.raises(grpc.RpcError) as refused:
            ask(server, pb.LeaseRequest(namespace=NAMESPACE, id="mine", as_of=499, relations=["s.a"]))
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED  # type: ignore[attr-defined]
        assert not len(leases(server))


def test_a_lost_renewal_is_made_again_soon(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the gateway has no room, or no replica answers yet."""
    monkeypatch.setattr(transaction_lease, "RENEW_SECONDS", 0.05)
    monkeypatch.setattr(transaction_lease, "RETRY_SECONDS", 0.05)
    renew, failed = server.link.renew_lease, list[float]()

    async def lost(*asked: Any) -> Any:
        if len(failed) < 2:
            failed.append(time.monotonic())
            raise WireError("57P03", "no replica answers")
        return await renew(*asked)

    monkeypatch.setattr(server.link, "renew_lease", lost)
    with begun(server):
        first = server.loop.call(lambda: next(leases(server).relations(now_ms())).lease.until_ms)
        until(lambda: next(leases(server).relations(now_ms())).lease.until_ms > first)
        assert len(failed) == 2


def test_a_clock_that_is_set_forward_ends_no_transaction(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """By an hour, as after a correction. The wait of a new operator ends no sooner, too."""
    with begun(server) as connection:
        server.loop.call(server.running_fleet.stand)
        monkeypatch.setattr("tidemark_operator.fleet.fleet.now_ms", lambda: now_ms() + 3_600_000)
        server.loop.call(server.running_fleet.maintain_leases)
        assert len(leases(server)) == 1
        assert server.running_fleet.book(NAMESPACE).stands()
        connection.execute("COMMIT")


def test_an_operator_that_may_not_lead_any_more_holds_nothing_new(server: Served) -> None:
    """Another one may lead, which waits for the leases that were granted before it did."""
    notices = list[str]()
    server.leadership.leads = False
    with server.connect() as connection:
        connection.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
        connection.execute("BEGIN")
        assert connection.execute(SELECT).fetchone() == (1,)
        connection.execute("COMMIT")
    assert "another one may lead" in notices[0]
    assert not len(leases(server))
    with pytest.raises(grpc.RpcError) as refused:
        ask(server, pb.LeaseRequest(namespace=NAMESPACE, id="mine", as_of=499, relations=["s.a"]))
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION  # type: ignore[attr-defined]


def test_an_operator_that_may_not_lead_for_a_while_ends_no_lease(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server is away, so it could not renew any. Once it leads, clients renew in time."""
    monkeypatch.setattr(transaction_lease, "RENEW_SECONDS", 0.05)
    monkeypatch.setattr(transaction_lease, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(lease_book, "LEASE_MS", 1_000)
    with begun(server) as connection:
        server.leadership.leads = False
        beyond = steady_ms() + 1_500
        while steady_ms() < beyond:
            assert goes_on(server, 2_000) == 499
            time.sleep(0.1)
        server.leadership.leads = True
        until(lambda: next(leases(server).relations(now_ms())).lease.until_ms > beyond + 1_000)
        assert connection.execute(SELECT).fetchone() == (1,)


def test_a_failed_transaction_holds_nothing(server: Served) -> None:
    """Nothing is read in it until its end, unless it goes back to a savepoint."""
    with begun(server) as connection:
        with pytest.raises(psycopg.Error):
            connection.execute(FAILS)
        until(lambda: not len(leases(server)))
        connection.execute("ROLLBACK")
    with begun(server) as connection:
        connection.execute("SAVEPOINT s")
        with pytest.raises(psycopg.Error):
            connection.execute(FAILS)
        time.sleep(0.5)
        assert goes_on(server, 2_000) == 499
        connection.execute("ROLLBACK TO SAVEPOINT s")
        assert connection.execute(SELECT).fetchone() == (1,)
        connection.execute("RELEASE SAVEPOINT s")
        with pytest.raises(psycopg.Error):
            connection.execute(FAILS)
        until(lambda: not len(leases(server)))
        connection.execute("ROLLBACK")


def test_ended_leases_that_cannot_be_sent_are_bounded(server: Served) -> None:
    """The gateway is away, and transactions go on to fail: the oldest ends are forgotten."""

    def end_many() -> int:
        for number in range(gateway.MAX_WAITING + 10):
            server.link.end_lease(TOKEN, f"{number}")
        return len(server.link._ended_leases)

    assert server.loop.call(end_many) == gateway.MAX_WAITING
    until(lambda: not server.link._ended_leases)
