"""A system whose replicas send no Status: queries, subscribes, copies, edits, failures and quarantine are seen as ever.

A replica keeps each Status back, by `silent/sitecustomize.py`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.e2e.clients.subscription import following
from tests.e2e.failures.test_quarantine import POISON, holds, moves, poisonous
from tests.e2e.system import System, revisions, wait_for
from tests.stored_files import rows_away

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.broad]

SILENT = Path(__file__).parents[1] / "silent" / "sitecustomize.py"
COUNT = "SELECT o_orderstatus, count(*) AS orders FROM tpch.orders GROUP BY o_orderstatus"


@pytest.fixture(scope="module", autouse=True)
def kept_back(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kinds of Status that replicas have not sent."""
    folder = tmp_path_factory.mktemp("silent")
    shutil.copy(SILENT, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep))
        yield folder / "kept-back"


@pytest.fixture(scope="module")
def system(kept_back: Path, own_system: System) -> System:
    own_system.dataflow("honest", COUNT)
    own_system.wait_hydrated("honest")
    return own_system


@pytest.fixture(autouse=True)
def is_silent(system: System, kept_back: Path) -> None:
    """Statuses were there to be sent, and none has come."""
    assert "hydration" in kept_back.read_text().split()
    statuses = system.query("SELECT DISTINCT kind FROM tidemark_introspection.statuses")["rows"]
    assert [row for row in statuses if not row["kind"].startswith("failure ")] == []


def test_queries_are_answered_or_fail_with_their_reason(system: System) -> None:
    answer = system.query("SELECT sum(orders) AS n FROM honest")
    at = answer["as_of"]
    assert answer["rows"] == [{"n": system.query("SELECT count(*) AS n FROM tpch.orders", at)["rows"][0]["n"]}]
    for sql, why in {
        "SELECT sum(1 / (n_regionkey - 1)) FROM tpch.nation": "EXPRESSION_FAILED",
        "SELECT count(n_nam) FROM tpch.nation": "n_nam",
    }.items():
        done = system.tidemark("query", sql, "-n", system.namespace)
        assert (done.returncode, why in done.stderr) == (1, True), done.stderr


def test_a_subscribe_and_a_copy_tell_what_the_view_holds(system: System) -> None:
    with following(system, "honest", "--progress") as told:
        wait_for("its first rows", lambda: told.changes, system.log)
        begun = told.changes[-1][0]
        wait_for("further changes", lambda: told.changes[-1][0] > begun, system.log)
        at = told.changes[-1][0]
        wait_for("all of them", lambda: told.progress and (told.progress[-1] or 0) > at, system.log)
        rows = system.query("SELECT * FROM honest", as_of=at)["rows"]
        assert told.before(at + 1) == Counter(tuple(row.values()) for row in rows)
    copied = system.tidemark(
        "copy", COUNT, "--to", "silent", "--format", "parquet", "-o", "json", "-n", system.namespace
    )
    assert copied.returncode == 0, copied.stderr
    document = json.loads(copied.stdout)
    found = [row for file in Path(document["location"]).glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    expected = system.query("SELECT * FROM honest", as_of=document["as_of"])["rows"]
    assert Counter(map(str, found)) == Counter(map(str, expected))


def test_an_edit_hydrates_and_takes_over(system: System) -> None:
    system.dataflow("edited", COUNT)
    system.wait_up_to_date("edited")
    system.dataflow("edited", COUNT + " HAVING count(*) > 1000000")
    wait_for("the edit to serve", lambda: system.query("SELECT * FROM edited")["rows"] == [], system.log)
    system.wait_up_to_date("edited")
    wait_for("the earlier revision to go", lambda: len(revisions(system, "edited")) == 1, system.log)


def test_an_edit_whose_step_fails_does_not_take_over_whoever_operates(system: System, kept_back: Path) -> None:
    """A file of its input is away. An operator that begins meanwhile hears of the failure at once: of no attempt."""
    system.dataflow("failing", COUNT)
    system.wait_up_to_date("failing")
    with rows_away(system.shard("tpch", "region"), kept_back.with_name("away")):
        system.dataflow("failing", "SELECT count(*) AS regions FROM tpch.region")
        told = system.wait_condition("dataflow", "failing", "Progressing", "False", "ReplacementFailed")
        assert "step failed" in told
        kept_back.with_name("repeated-only").touch()
        before = failed_attempts(system)
        system.kill_operator()
        system.start_operator()
        wait_for("the failure to be repeated", lambda: failed_attempts(system), system.log)
        assert int(failed_attempts(system)) >= int(before)
        system.wait_condition("dataflow", "failing", "Progressing", "False", "ReplacementFailed")
        assert "orders" in system.query("SELECT * FROM failing")["rows"][0]
        kept_back.with_name("repeated-only").unlink()
    wait_for("the edit", lambda: system.query("SELECT * FROM failing")["rows"] == [{"regions": 5}], system.log)


def failed_attempts(system: System) -> str:
    """The number of attempts of a step that failed, as the operator knows; empty where it knows of no failure."""
    rows = system.query("SELECT value FROM tidemark_introspection.statuses WHERE field = 'attempts'")["rows"]
    return str(rows[0]["value"]) if rows else ""


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_poison_dataflow_is_set_aside(system: System) -> None:
    """By the deaths of its replica, which no Status tells."""
    with poisonous(system, "poison") as killed:
        system.dataflow("poison", POISON)
        wait_for("three deaths", lambda: len(killed) >= 3, system.log, patience=1200.0)
        assert "3 times" in system.wait_condition("dataflow", "poison", "Scheduled", "False", "Quarantined")
        wait_for("the replica", lambda: holds(system, "computereplica", "r1", "Online"), system.log, patience=1200.0)
        assert moves(system)
