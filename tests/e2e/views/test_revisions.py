"""Edits on real processes: revisions side by side, that take over together or not at all.

nations is an index that `located` imports; `located` writes a table.
"""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from tests.e2e.clients.subscription import Row, following
from tests.e2e.system import System, revisions, wait_for
from tidemark_persist import open_shard

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.broad]

NATIONS = "SELECT n_nationkey, n_name FROM tpch.nation"
NAMELESS = "SELECT n_nationkey, n_regionkey FROM tpch.nation"
LOCATED = """
SELECT n.{column}, count(*) AS customers FROM tpch.customer c JOIN nations n ON c.c_nationkey = n.n_nationkey
GROUP BY n.{column}
"""
KEY = {"key": ["n_nationkey"]}
COUNTED = "SELECT o_orderstatus, count(*) AS orders FROM tpch.orders GROUP BY o_orderstatus"
# its inputs can be read for as long as the test may take
BY_STATUS = {"index": {"key": ["o_orderstatus"]}, "readPolicy": {"lag": "1h"}}


@pytest.fixture(scope="module", autouse=True)
def located(system: System) -> None:
    """Both Dataflows, hydrated."""
    system.dataflow("nations", NATIONS, index=KEY)
    system.dataflow("located", LOCATED.format(column="n_name"))
    system.wait_hydrated("nations", "located")


def test_an_edit_and_its_importers_take_over_together_without_a_gap(system: System) -> None:
    """The importer's table is the same one; at each of its times it holds all of the old nations, or all of the new."""
    before, since = marks(system), upper(system)
    system.dataflow("nations", NATIONS + " WHERE n_nationkey > 4", index=KEY)
    system.wait_up_to_date("nations")
    old = len(rows(system, since - 1))
    wait_for("the new contents", lambda: len(rows(system, upper(system) - 1)) < old, system.log)

    # what took over says so first in the status of the edited Dataflow, a little later in the others'
    wait_for("both statuses to say so", lambda: not set(marks(system)) & set(before), system.log)
    until = upper(system)
    # perhaps the new revision's first change is the next that the table has at all
    times = [*range(since - 1, until - 1, max(250, (until - since) // 100)), until - 1]
    assert {len(rows(system, at)) for at in times} == {old, len(rows(system, until - 1))}
    assert not system.shard("located", "located", version=2).exists()
    system.wait_condition("dataflow", "located", "Progressing", "False", "UpToDate")
    wait_for("the old revisions to go", lambda: len(revisions(system, "nations")) == 1, system.log)
    assert ready_events(system, "nations") == sorted(
        f"revision {name} serves reads" for name in (before[0], marks(system)[0])
    )


def test_crash_two_revisions_alive_while_a_dependant_cannot_be_planned(system: System) -> None:
    """The edit is held back and says by whom, also to the next operator, which finds both revisions and computes
    nothing anew; the old ones serve. Then the dependant is edited too, and both take over."""
    before, shown = marks(system), upper(system)
    system.dataflow("nations", NAMELESS, index=KEY)

    def why() -> str:
        message = system.wait_condition("dataflow", "nations", "Progressing", "False", "ReplacementFailed")
        return message if "n_name" in message else ""

    # a busy planner that took too long is said, too, and asked again
    assert "Dataflow located" in wait_for("the name to be said", why, system.log)
    wait_for("the edit to hydrate", lambda: hydrated(system), system.log)
    computed = system.replica_says().hydrations
    pending = system.get("dataflow", "nations")["status"]["pending"]["revision"]
    system.kill_operator()
    reached = upper(system)
    system.start_operator()
    wait_for("the old revision to be heard of again", lambda: live(system) > reached, system.log)
    assert reached >= shown
    system.wait_condition("dataflow", "nations", "Progressing", "False", "ReplacementFailed")

    assert system.get("dataflow", "nations")["status"]["pending"]["revision"] == pending
    assert marks(system) == before
    assert system.replica_says().hydrations == computed
    for name in ("nations", "located"):  # what serves is ready, whatever becomes of the edit
        system.wait_condition("dataflow", name, "Ready")
    assert "n_name" in system.query("SELECT * FROM located")["rows"][0]

    system.dataflow("located", LOCATED.format(column="n_regionkey"))
    system.wait_up_to_date("nations")
    system.wait_up_to_date("located")
    assert marks(system)[0] == pending["name"]
    assert len(system.query("SELECT n_regionkey FROM located")["rows"]) == 5


def test_an_edit_that_is_reverted_was_never_there(system: System) -> None:
    """The serving revision goes on; the revision that was to take over goes, and with it its state."""
    serves = system.get("dataflow", "nations")["status"]
    spec = system.get("dataflow", "nations")["spec"]
    system.dataflow("nations", NATIONS, index=KEY)
    system.wait_condition("dataflow", "nations", "Progressing", "False", "ReplacementFailed")
    system.dataflow("nations", spec["sql"], index=KEY)
    system.wait_up_to_date("nations")

    after = system.get("dataflow", "nations")["status"]
    assert after["revision"]["name"] == serves["revision"]["name"]
    assert [e["id"] for e in after["exports"]] == [e["id"] for e in serves["exports"]]
    assert "pending" not in after
    system.wait_condition("dataflow", "located", "Progressing", "False", "UpToDate")


def test_an_edit_of_the_writer_of_a_finished_table_begins_it_again(system: System) -> None:
    """Constants are complete for all times: their table takes no correction any more."""
    system.dataflow("constant", "SELECT 1 AS x")
    system.wait_hydrated("constant")
    system.dataflow("constant", "SELECT 2 AS x")
    system.wait_up_to_date("constant")

    assert system.query("SELECT x FROM constant")["rows"] == [{"x": 2}]
    assert system.shard("constant", "constant", version=2).exists()


def test_a_subscribe_to_an_edited_view_reports_the_edit_and_can_be_resumed(system: System) -> None:
    """It ends with the index that it reads, and names the time as of which another one loses and repeats nothing."""
    system.dataflow("counted", COUNTED, **BY_STATUS)
    system.wait_hydrated("counted")
    with following(system, "counted", "--progress") as first:
        wait_for("progress", lambda: len(first.progress) > 2, system.log)
        system.dataflow("counted", f"{COUNTED} HAVING o_orderstatus > 'F'", **BY_STATUS)
        system.wait_up_to_date("counted")
        assert first.wait() == 1, system.log()
    output, last_progress = first.said(), first.progress[-1]
    assert "Dataflow counted was edited" in output
    assert f"All changes before {last_progress} (" in output
    again = re.search(r"as[- ]of (\d+)", output)
    assert again is not None, output
    at = int(again[1])
    assert last_progress is not None
    assert at + 1 >= last_progress

    with following(system, "counted", "--as-of", str(at), "--up-to", str(at + 3000)) as second:
        assert second.wait() == 0, second.said()
    assert first.before(last_progress) == counted(system, last_progress - 1)
    for time in (at, at + 2999):
        assert second.before(time + 1) == counted(system, time, "O", "P")


def counted(system: System, at: int, *statuses: str) -> Counter[Row]:
    """The number of orders of each status, or of these, read from the Delta table: one row each."""
    total: Counter[str] = Counter()
    for row in system.contents("tpch", "orders", at).to_pylist():
        total[row["o_orderstatus"]] += row["__diff"]
    return Counter({(status, n): 1 for status, n in total.items() if n and status in (statuses or total)})


def marks(system: System) -> list[str]:
    """The revisions that serve."""
    return [system.get("dataflow", name)["status"]["revision"]["name"] for name in ("nations", "located")]


def hydrated(system: System) -> bool:
    pending = system.get("dataflow", "nations")["status"].get("pending", {})
    return bool(pending.get("exports")) and all(export["hydrated"] for export in pending["exports"])


def upper(system: System) -> int:
    return int(open_shard(str(system.shard("located", "located"))).refresh().upper)


def live(system: System) -> int:
    """The incarnation that lives, as the operator knows it."""
    return int(system.live_frontiers().get("located.located", {}).get("write", -1))


def rows(system: System, at: int) -> list[dict[str, object]]:
    return list(system.contents("located", "located", at).to_pylist())


def ready_events(system: System, name: str) -> list[str]:
    """The notes of the Events that say that the Dataflow became ready. One of its name was in the namespace before."""
    uid = system.get("dataflow", name)["metadata"]["uid"]
    listed = json.loads(system.kubectl("get", "events.events.k8s.io", "-n", system.namespace, "-o", "json"))["items"]
    found = [e for e in listed if e["regarding"].get("uid") == uid and e["reason"] == "Ready"]
    assert {e["type"] for e in found} == {"Normal"}
    return sorted(e["note"] for e in found)
