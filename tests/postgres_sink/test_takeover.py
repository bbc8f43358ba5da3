"""A Dataflow that is deleted and created anew under its name, or edited, while deliveries of the one before run: the
table has the rows of the last one to claim it, whichever delivery ends last."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.postgres.databases import Database
from tests.postgres_sink.views import Row, View, progress_and_rows, sink_to
from tidemark_persist import PersistError
from tidemark_protocol.plan.sinks.postgres import PostgresSink
from tidemark_replica.sinks.destinations.destination import DestinationStopped
from tidemark_replica.sinks.postgres.progress import WrittenByLater
from tidemark_replica.sinks.postgres.statements import Statements
from tidemark_replica.sinks.postgres.target_table import Connection

pytestmark = [pytest.mark.postgres, pytest.mark.broad]
TWO_ROWS_OF_A_KEY: tuple[Row, Row] = ((1, "a", "x", 1.0), (1, "a", "y", 2.0))


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """`between(run)`: the next delivery of all contents calls `run` between its two transactions."""
    check, runs = Statements.check_contents, list[Callable[[], object]]()

    def checked(self: Statements, connection: Connection) -> None:
        check(self, connection)
        if runs:
            runs.pop()()

    monkeypatch.setattr(Statements, "check_contents", checked)
    return runs.append


def unique(tmp_path: Path, shard_id: str, seed: int) -> View:
    view = View(tmp_path, shard_id=shard_id, seed=seed)
    view.step(9)
    return view


def not_unique(tmp_path: Path, shard_id: str) -> View:
    """A view whose deliveries fail after they have claimed the row."""
    view = View(tmp_path, shard_id=shard_id)
    view.append([(row, 0, 1) for row in TWO_ROWS_OF_A_KEY])
    return view


def refuse(view: View, sink: PostgresSink, reason: str, term: int = 1, uid: str = "u") -> None:
    with pytest.raises(DestinationStopped) as stopped:
        view.deliver(sink, term=term, uid=uid)
    assert stopped.value.reason == reason


Between = Callable[[Callable[[], object]], None]


def test_an_earlier_dataflow_in_the_middle_of_its_first_delivery_is_refused(
    database: Database, tmp_path: Path, between: Between
) -> None:
    """The later one goes on, and the earlier one stays refused."""
    earlier, later, sink = unique(tmp_path, "u1", 0), unique(tmp_path, "u2", 1), sink_to(database)
    between(lambda: later.deliver(sink, uid="later"))
    refuse(earlier, sink, "TableTakenOver", term=7)
    assert progress_and_rows(database, sink) == (0, later.rows())
    later.deliver(sink, later.step(3), uid="later")
    assert progress_and_rows(database, sink) == (1, later.rows())
    refuse(earlier, sink, "TableTakenOver", term=7)


def test_an_earlier_dataflow_in_the_middle_of_a_later_delivery_is_refused(
    database: Database, tmp_path: Path, between: Between
) -> None:
    """The table has had contents, which both replace."""
    earlier, later, sink = unique(tmp_path, "u1", 0), unique(tmp_path, "u2", 1), sink_to(database)
    earlier.deliver(sink)
    earlier.forget_before(earlier.step(3))
    between(lambda: later.deliver(sink, uid="later"))
    refuse(earlier, sink, "TableTakenOver")
    assert progress_and_rows(database, sink) == (0, later.rows())


def test_a_claim_alone_refuses_the_earlier_dataflow(database: Database, tmp_path: Path, between: Between) -> None:
    """The later one has claimed the row, and has not written the table yet."""
    earlier, later, sink = unique(tmp_path, "u1", 0), not_unique(tmp_path, "u2"), sink_to(database)
    between(lambda: refuse(later, sink, "KeyNotUnique", uid="later"))
    refuse(earlier, sink, "TableTakenOver")
    assert database.value("select to_regclass('kept')") is None
    later.append([(TWO_ROWS_OF_A_KEY[0], 1, -1)])
    later.deliver(sink, uid="later")
    assert progress_and_rows(database, sink) == (1, later.rows())


def test_an_earlier_dataflow_that_never_wrote_the_table_is_refused(database: Database, tmp_path: Path) -> None:
    earlier, later, sink = not_unique(tmp_path, "u1"), unique(tmp_path, "u2", 1), sink_to(database)
    refuse(earlier, sink, "KeyNotUnique")
    later.deliver(sink, uid="later")
    earlier.append([(TWO_ROWS_OF_A_KEY[0], 1, -1)])
    refuse(earlier, sink, "TableTakenOver")
    assert progress_and_rows(database, sink) == (0, later.rows())


def test_a_claim_of_a_later_revision_refuses_the_one_before(
    database: Database, tmp_path: Path, between: Between
) -> None:
    before, after, sink = unique(tmp_path, "u1", 0), not_unique(tmp_path, "u2"), sink_to(database)
    between(lambda: refuse(after, sink, "KeyNotUnique", term=2))
    with pytest.raises(WrittenByLater, match="term 2"):
        before.deliver(sink, term=1)
    assert database.value("select to_regclass('kept')") is None


def test_a_claim_keeps_the_time_of_the_rows(database: Database, tmp_path: Path) -> None:
    """The table still has the rows of the earlier Dataflow, of their time."""
    earlier, later, sink = unique(tmp_path, "u1", 0), not_unique(tmp_path, "u2"), sink_to(database)
    earlier.deliver(sink)
    refuse(later, sink, "KeyNotUnique", uid="later")
    assert progress_and_rows(database, sink) == (0, earlier.rows())


def test_replicas_of_one_revision_that_copy_at_once(database: Database, tmp_path: Path, between: Between) -> None:
    view, sink = unique(tmp_path, "u1", 0), sink_to(database)
    between(lambda: view.deliver(sink))
    assert view.deliver(sink).time == 0
    assert progress_and_rows(database, sink) == (0, view.rows())


def test_a_row_of_progress_that_is_deleted_meanwhile(database: Database, tmp_path: Path, between: Between) -> None:
    """The delivery does not know any more whether it may write the table, so it fails; the next one begins anew."""
    view, sink = unique(tmp_path, "u1", 0), sink_to(database)
    between(lambda: database.run("delete from tidemark_sinks"))
    with pytest.raises(PersistError, match="deleted meanwhile"):
        view.deliver(sink)
    view.deliver(sink)
    assert progress_and_rows(database, sink) == (0, view.rows())


def test_another_view_that_claims_the_table_meanwhile(database: Database, tmp_path: Path, between: Between) -> None:
    """Two views name a table that neither has written: one gets it, and the sink of the other stops by name."""
    one, other, sink = unique(tmp_path, "u1", 0), not_unique(tmp_path, "u2"), sink_to(database)
    sink_of_other = sink_to(database, owner="shop.other.view")
    between(lambda: refuse(other, sink_of_other, "KeyNotUnique", uid="other"))
    with pytest.raises(WrittenByLater, match="another Dataflow"):
        one.deliver(sink)
    one.deliver(sink)
    assert progress_and_rows(database, sink) == (0, one.rows())
    refuse(other, sink_of_other, "TableOfAnother", uid="other")


def test_the_way_back_that_is_told_leads_back(database: Database, tmp_path: Path) -> None:
    right, wrong, sink = unique(tmp_path, "u1", 0), unique(tmp_path, "u2", 1), sink_to(database)
    right.deliver(sink)
    wrong.deliver(sink, uid="wrong")
    with pytest.raises(DestinationStopped, match=r"delete the table's row of public\.tidemark_sinks, and empty"):
        right.deliver(sink)
    database.run("delete from tidemark_sinks where table_name = 'kept'", "truncate kept")
    right.deliver(sink)
    assert progress_and_rows(database, sink) == (0, right.rows())
