"""The gateway as users of a cluster see it: rights per object, strict queries, why, and introspection."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.e2e.clients.subscription import following
from tests.e2e.system import CHECKOUT, PATIENCE_SECONDS, System, wait_for
from tests.waiting import BOUND

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster]

BY_NATION = "SELECT c_nationkey, count(*) AS customers FROM tpch.customer GROUP BY c_nationkey"
LOOKUP = "SELECT customers FROM nations WHERE c_nationkey = 3"
GATEWAY = "tidemark-gateway"
BY_STATUS = "SELECT o_orderstatus AS carrier, count(*) AS flights FROM tpch.orders GROUP BY o_orderstatus"
SHOWN = "((change) => console.log(JSON.stringify(change)))("


def test_seeing_status_is_not_seeing_rows(system: System, tmp_path: Path) -> None:
    """ServiceAccounts with rights to rows of one Dataflow, to status, and to nothing; and a token for others."""
    _nations(system)
    manifest = tmp_path / "nations.json"
    manifest.write_text(json.dumps(system.get("dataflow", "nations")))
    rules = "--resource=dataflows.compute.tidemark.dev/data --resource-name=nations"
    _account(system, "reader", "--verb=get", *rules.split())
    _account(
        system, "watcher", "--verb=list", "--resource=dataflows.compute.tidemark.dev,datasources.compute.tidemark.dev"
    )
    system.kubectl("create", "serviceaccount", "nobody")
    token = {name: _token(system, tmp_path, name) for name in ("reader", "watcher", "nobody")}

    # the API server comes to know of a new binding a little later, and the gateway believes a refusal for a while
    for name, *may in (("reader", "query", LOOKUP), ("watcher", "frontiers")):
        wait_for(f"{name}'s right", lambda name=name, may=may: _asked(system, token[name], *may).returncode == 0)
    for name, command, missing in (
        ("reader", ("query", "SELECT count(*) FROM tpch.customer"), "does not exist or that you may not"),
        ("reader", ("query", "SELECT count(*) FROM tpch.nonsense"), "does not exist or that you may not"),
        ("reader", ("query", "SELECT * FROM nations JOIN tpch.nation ON true"), "does not exist or that you may not"),
        ("reader", ("query", "SELECT 1"), "may not list"),
        ("watcher", ("query", "SELECT count(*) FROM tpch.customer"), "may not get datasources/data tpch"),
        ("reader", ("frontiers",), "may not list"),
        ("reader", ("query", "SELECT nope FROM nations"), "may not list"),
        ("reader", ("query", "SELECT * FROM tidemark_introspection.frontiers"), "may not list"),
        ("reader", ("copy", "nations", "--to", "mine", "--format", "csv"), "may not create dataflows/copies"),
        ("watcher", ("query", LOOKUP), "may not get dataflows/data nations"),
        ("watcher", ("frontiers", "-A"), "in all namespaces"),
        ("nobody", ("query", LOOKUP), "does not exist or that you may not"),
        ("nobody", ("explain", "nations"), "may not list"),
        ("nobody", ("explain", "-f", str(manifest)), "may not list"),
        ("nobody", ("why", "nations"), "may not list"),
    ):
        done = _asked(system, token[name], *command)
        assert (done.returncode, missing in done.stderr) == (1, True), (name, command, done.stderr)
        assert done.stdout == ""
    for command in (("frontiers",), ("why", "nations"), ("explain", "nations"), ("explain", "-f", str(manifest))):
        assert _asked(system, token["watcher"], *command).returncode == 0

    general = _token(system, tmp_path, "reader", audience="https://kubernetes.default.svc")
    assert "does not know this token" in _asked(system, general, "query", LOOKUP).stderr
    with following(system, "nations", "--progress", "--token-file", str(token["reader"])) as followed:
        wait_for("progress", lambda: followed.progress, system.log)
        system.kubectl("delete", "rolebinding", "reader")
        wait_for("the right to be gone", lambda: _asked(system, token["reader"], "query", LOOKUP).returncode == 1)
        assert followed.wait() == 1, system.log()
    assert "the right to read it was withdrawn: " in followed.said()


def test_a_strict_answer_has_all_that_was_ingested_when_it_was_asked(system: System) -> None:
    """Each is as of a time that the source had reached before it was asked, and later than the one before."""
    _nations(system)
    for _ in range(3):
        ingested = int(system.live_frontiers()["tpch.customer"]["write"])
        done = system.tidemark("query", LOOKUP, "-n", system.namespace, "-o", "json", "--strict")
        assert done.returncode == 0, done.stderr + system.log()
        assert json.loads(done.stdout)["as_of"] >= ingested - 1
    done = system.tidemark("query", LOOKUP, "-n", system.namespace, "--strict", "--as-of", "5")
    assert "choose one" in done.stderr


def test_why_leads_from_a_view_to_the_source_that_stands_still(system: System) -> None:
    """Suspended, it is the reason, and says so; running, it is the reason as well, and says where it runs."""
    _nations(system)
    wait_for(
        "the source to be the reason", lambda: _reason(system) == ("tpch.customer", "DataSource tpch: on replica r1")
    )
    system.kubectl("patch", "datasource", "tpch", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    try:
        wait_for("the suspended source to be the reason", lambda: _reason(system)[1].startswith("Suspended: "))
        done = system.tidemark("why", "nowhere", "-n", system.namespace)
        assert "there is no Dataflow, DataSource, export or table nowhere" in done.stderr
    finally:
        system.kubectl("patch", "datasource", "tpch", "--type=merge", "-p", '{"spec":{"suspend":false}}')


def test_a_finished_relation_is_read_as_of_now(system: System) -> None:
    """A view of constants never changes but with the clock; so do queries computed from it."""
    rows = "VALUES (1, timestamp'2020-01-01'), (2, timestamp'2999-01-01') AS v(k, since)"
    system.dataflow("constants", f"SELECT * FROM {rows}")
    system.dataflow("begun", f"SELECT k FROM {rows} WHERE since < now()", index={"key": ["k"]})
    system.wait_hydrated("constants", "begun")
    for sql in (
        "SELECT k FROM begun",
        "SELECT k FROM begun WHERE k = 1",
        "SELECT k FROM constants WHERE since < now() GROUP BY k",
    ):
        assert system.query(sql)["rows"] == [{"k": 1}], sql


def test_introspection_is_queried_like_tables(system: System) -> None:
    """Rows as they are, joined with each other and with a table, aggregated, and ordered by what is not shown."""
    _nations(system)
    answer = system.query(
        "SELECT name, kind FROM tidemark_introspection.frontiers WHERE hydrated ORDER BY lag_ms, name"
    )
    assert {"name": "nations.nations", "kind": "index"} in answer["rows"]
    assert {"name": "tpch.customer", "kind": "table"} in answer["rows"]

    joined = """SELECT f.name, r.replica, (SELECT count(*) FROM tpch.region) AS regions
        FROM tidemark_introspection.frontiers f JOIN tidemark_introspection.replica_frontiers r ON f.name = r.name
        WHERE r.input_time > 0 AND r.refused_reports = 0"""
    on_r1 = {"name": "nations.nations", "replica": "r1", "regions": 5}
    wait_for("the replica's word", lambda: on_r1 in system.query(joined)["rows"], system.log)

    (known,) = system.query("SELECT * FROM tidemark_introspection.dataflows WHERE name = 'nations'")["rows"]
    assert (known["scheduled"], known["hydrated"], known["exports"]) == (True, True, 1)
    lag = "SELECT sum(seconds) AS n FROM tidemark_introspection.wallclock_lag WHERE name = 'nations.nations'"
    wait_for("a second to be counted", lambda: (system.query(lag)["rows"][0]["n"] or 0) > 0)
    assert system.query("SELECT count(*) AS n FROM tidemark_introspection.errors")["rows"] == [{"n": 0}]
    assert system.tidemark("query", "SELECT * FROM tidemark_introspection.nope", "-n", system.namespace).returncode == 1


def test_costs_of_a_dataflow_are_queried_by_operator(system: System) -> None:
    """The replica says what each keeps, and how long it has worked; the sum is what the dataflow keeps."""
    _nations(system)
    costs = "SELECT * FROM tidemark_introspection.operators WHERE dataflow = 'nations' ORDER BY place"
    rows = wait_for("operators to be told", lambda: _reported_operators(system.query(costs)["rows"]), system.log)
    assert [(r["place"], r["operator"], r["kind"]) for r in rows] == [
        (1, "read customer", "Get"),
        (2, "reduce", "Reduce"),
        (3, "index nations", "ArrangeBy"),
    ]
    assert {r["replica"] for r in rows} == {"r1"}
    assert rows[0]["records"] == 0
    assert min(r["records"] for r in rows[1:]) > 0

    done = system.tidemark("top", "-o", "json", "-n", system.namespace)
    (usage,) = [each for each in json.loads(done.stdout)["dataflows"] if each["name"] == "nations"]
    assert (usage["replica"], usage["hydrated"]) == ("r1", True)
    assert min(int(usage[number]) for number in ("bytes", "records", "steps")) > 0

    together = """SELECT sum(o.bytes) > 0 AND max(s.hydration_ms) > 0 AS told
        FROM tidemark_introspection.operators o JOIN tidemark_introspection.steps s
        ON o.dataflow = s.dataflow AND o.replica = s.replica"""
    wait_for("both to be told", lambda: system.query(together)["rows"] == [{"told": True}], system.log)

    (read,) = system.query("SELECT * FROM tidemark_introspection.imports WHERE dataflow = 'nations'")["rows"]
    assert (read["name"], read["kind"], read["finished"]) == ("tpch.customer", "table", False)
    assert min(read["input_time"], read["write_time"]) > 0


def test_the_guides_to_http_and_python_are_right(system: System, tmp_path: Path) -> None:
    """Their examples run as they stand; and a client of events that goes and comes again misses and repeats nothing."""
    place = _http(system)
    system.dataflow("delays", BY_STATUS, index={"key": ["carrier"]})
    system.wait_hydrated("delays")
    guides = CHECKOUT / "docs" / "guides"
    guide = (guides / "http.md").read_text().replace("team-a", system.namespace)
    query, subscribe = re.findall(r"```bash\n(.*?)```", guide, re.DOTALL)
    environment = {**os.environ, **place}

    done = subprocess.run(["bash", "-c", query], env=environment, capture_output=True, text=True, timeout=BOUND)
    assert done.returncode == 0, done.stdout + done.stderr + system.log()
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [list(row) for row in rows] == [["carrier", "flights"]] * 2
    assert rows[0]["flights"] >= rows[1]["flights"] > 0

    program = tmp_path / "program.mjs"
    (text,) = re.findall(r"```js program\n(.*?)```", guide, re.DOTALL)
    program.write_text(f"const {{ URL, TOKEN }} = process.env;\n{text.replace('console.log(', SHOWN)}")
    commands = [["bash", "-c", f"exec {subscribe}"], *([["node", str(program)]] if shutil.which("node") else [])]
    for command in commands:
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            change = json.loads(process.stdout.readline())
            assert list(change) == ["__time", "__diff", "carrier", "flights"], command
            process.kill()

    examples = re.findall(r"```python\n(.*?)```", (guides / "python.md").read_text(), re.DOTALL)
    told = [sys.executable, "-c", "\n".join(examples).replace("team-a", system.namespace)]
    found = {"TIDEMARK_GATEWAY_FILE": str(system.home / "gateway.json")}
    done = subprocess.run(told, env={**os.environ, **found}, capture_output=True, text=True, timeout=BOUND)
    assert done.returncode == 0, done.stdout + done.stderr + system.log()
    assert "('carrier', 'string')" in done.stdout

    total: Counter[tuple[str, int]] = Counter()
    last = None
    for _ in range(3):
        last = _take_events(place, system.namespace, total, last)
        expected = system.query("SELECT carrier, flights FROM delays", _time(last))["rows"]
        assert +total == Counter((row["carrier"], row["flights"]) for row in expected)
    assert min(total.values()) >= 0
    assert last is not None

    system.dataflow("delays", f"{BY_STATUS} HAVING count(*) > 1", index={"key": ["carrier"]})
    system.wait_up_to_date("delays")
    anew = _take_events(place, system.namespace, Counter(), None)
    before, after = (id.partition(".")[2] for id in (last, anew))
    assert before != after
    with pytest.raises(AssertionError, match="begin without Last-Event-ID, with the rows"):
        _take_events(place, system.namespace, Counter(), f"{_time(anew)}.{before}")


def _time(id: str) -> int:
    return int(id.partition(".")[0])


def _take_events(place: dict[str, str], namespace: str, total: Counter[tuple[str, int]], last: str | None) -> str:
    """Add up the events until one with changes and one of progress came, then go; returns the last id."""
    changes = 0
    with closing(http.client.HTTPConnection(place["URL"].removeprefix("http://"), timeout=PATIENCE_SECONDS)) as to:
        after = {} if last is None else {"Last-Event-ID": last}
        headers = {"Authorization": f"Bearer {place['TOKEN']}", "Accept": "text/event-stream", **after}
        to.request("GET", f"/v1/subscribe?{urlencode({'namespace': namespace, 'subject': 'delays'})}", headers=headers)
        answer = to.getresponse()
        assert answer.status == 200, answer.read()
        for name, id, data in _events(answer):
            assert last is None or _time(id) >= _time(last)
            last = id
            if name == "progress" and changes:
                return id
            for change in data if name == "message" else ():
                assert change["__time"] == _time(id)
                total[change["carrier"], change["flights"]] += change["__diff"]
                changes += 1
    raise AssertionError("the subscribe ended")


def _events(answer: http.client.HTTPResponse) -> Iterator[tuple[str, str, list[Any]]]:
    """Name, id and lines of each event that is complete."""
    fields: list[tuple[str, str]] = []
    while line := answer.readline().decode():
        if line != "\n":
            name, _, value = line.rstrip("\n").partition(": ")
            fields.append((name, value))
        elif fields:
            named = dict(fields)
            yield named.get("event", "message"), named["id"], [json.loads(v) for n, v in fields if n == "data"]
            fields = []


def _http(system: System) -> dict[str, str]:
    """Where HTTP is served, and the operator's own token."""
    if "httpAddress" not in json.loads((system.home / "gateway.json").read_text()):
        system.kill_operator()
        system.arguments = ("--gateway-http-port", "0")
        system.start_operator()
    found = json.loads((system.home / "gateway.json").read_text())
    return {"URL": f"http://{found['httpAddress']}", "TOKEN": Path(found["tokenFile"]).read_text().strip()}


def _reported_operators(operators: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The operators, once the replica has said all of them since they were hydrated."""
    whole = [o["hydrated"] and o["percent"] == 100 and o["elapsed_ms"] is not None for o in operators]
    kept = [o["records"] for o in operators[1:]]
    return operators if kept and all(whole) and all(kept) else []


def _reason(system: System) -> tuple[str, str]:
    """The end of the marked way."""
    done = system.tidemark("why", "nations", "-n", system.namespace, "-o", "json")
    assert done.returncode == 0, done.stderr
    (cause,) = json.loads(done.stdout)["causes"]
    while held := [below for below in cause.get("because", []) if below.get("holds")]:
        (cause,) = held
    return cause["subject"], cause["says"]


def _nations(system: System) -> None:
    system.dataflow("nations", BY_NATION, index={"key": ["c_nationkey"]})
    system.wait_hydrated("nations")


def _account(system: System, name: str, *rules: str) -> None:
    system.kubectl("create", "serviceaccount", name)
    system.kubectl("create", "role", name, *rules)
    system.kubectl("create", "rolebinding", name, f"--role={name}", f"--serviceaccount={system.namespace}:{name}")


def _token(system: System, folder: Path, name: str, audience: str = GATEWAY) -> Path:
    """A TokenRequest's answer, in a file."""
    path = folder / f"{name}-{audience.rpartition('/')[2]}"
    path.write_text(system.kubectl("create", "token", name, "--audience", audience))
    return path


def _asked(system: System, token: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return system.tidemark(*command, "-n", system.namespace, "--token-file", str(token))
