"""One query's spans in all processes, at a collector, in the trace of its client."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.system import PATIENCE_SECONDS, System, new_namespace, running, wait_for
from tests.tracing.collector import Collector, Received, collecting
from tidemark_devcluster.control_plane.control_plane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.broad]

OPERATOR, PLANNER, REPLICA = "tidemark-operator", "tidemark-planner", "tidemark-replica"
COMPUTED = "SELECT soundex(o_orderstatus) AS s FROM statuses WHERE o_orderstatus <> 'QQQQ'"
"""An expression that the replica leaves to Spark."""
TRACE_OF_GUIDE = "0af7651916cd43dd8448eb211c80319c"
ANSWERED = {(OPERATOR, name) for name in ("query", "peek", "send")} | {(REPLICA, name) for name in ("peek", "read")}


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


@pytest.fixture(scope="module")
def traced(
    control_plane: ControlPlane, collector: Collector, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[System]:
    """An operator whose environment names the collector."""
    home = tmp_path_factory.mktemp("system")
    with pytest.MonkeyPatch.context() as environment, new_namespace(control_plane) as namespace:
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        with running(control_plane, namespace, home, "--gateway-http-port", "0") as system:
            system.base()
            system.tpch(tick="2s")
            system.dataflow("statuses", "SELECT o_orderstatus, count(*) AS n FROM tpch.orders GROUP BY 1", index={})
            system.wait_hydrated("statuses")
            yield system


def test_a_query_is_one_trace(traced: System, collector: Collector) -> None:
    trace = _ask(traced, COMPUTED)
    spans = _spans(collector, trace, ANSWERED | {(OPERATOR, "plan"), (PLANNER, "plan"), (REPLICA, "spark job")})

    def above(service: str, name: str) -> Received:
        return next(span for span in spans.values() if span.id == spans[service, name].parent)

    assert {span.trace for span in spans.values()} == {trace}
    assert above(REPLICA, "spark job") == spans[REPLICA, "read"]
    assert above(REPLICA, "read") == spans[REPLICA, "peek"]
    assert above(REPLICA, "peek") == spans[OPERATOR, "peek"]
    assert above(OPERATOR, "peek") == above(OPERATOR, "plan") == above(OPERATOR, "send") == spans[OPERATOR, "query"]
    assert above(PLANNER, "plan") == spans[OPERATOR, "plan"]
    assert spans[OPERATOR, "query"].parent == "b7ad6b7169203331"
    assert spans[OPERATOR, "peek"].links == (spans[REPLICA, "peek"].id,)
    assert not any("QQQQ" in span.text or "soundex" in span.text for span in spans.values())


def test_a_query_with_operators_is_traced_while_its_dataflow_hydrates(traced: System, collector: Collector) -> None:
    trace = _ask(traced, "SELECT count(*) AS n FROM tpch.orders o JOIN tpch.lineitem l ON l.l_orderkey = o.o_orderkey")
    spans = _spans(collector, trace, ANSWERED)
    assert "its time is complete" in spans[REPLICA, "peek"].text


def test_who_does_not_want_a_trace_has_none(traced: System, collector: Collector) -> None:
    trace = _ask(traced, "SELECT * FROM statuses", sampled="00")
    after = _ask(traced, "SELECT * FROM statuses")
    _spans(collector, after, ANSWERED)
    assert trace not in collector.traces()


def test_the_guide_is_right(traced: System, collector: Collector) -> None:
    guide = (
        (Path(__file__).parents[2] / "docs" / "guides" / "tracing.md").read_text().replace("team-a", traced.namespace)
    )
    (command,) = (block for block in re.findall("```bash\n(.*?)```", guide, re.DOTALL) if "curl" in block)
    found = json.loads((traced.home / "gateway.json").read_text())
    given = {"URL": f"http://{found['httpAddress']}", "TOKEN": Path(found["tokenFile"]).read_text().strip()}
    command = command.replace("FROM revenue", "FROM statuses")
    done = subprocess.run(["bash", "-ceu", command], env=os.environ | given, capture_output=True, text=True, check=True)
    assert "o_orderstatus" in done.stdout
    assert f"-{TRACE_OF_GUIDE}-" in command
    _spans(collector, TRACE_OF_GUIDE, ANSWERED)


def _ask(system: System, sql: str, sampled: str = "01") -> str:
    """The trace of a query over HTTP, which is answered."""
    found = json.loads((system.home / "gateway.json").read_text())
    trace = secrets.token_hex(16)
    given = urllib.parse.urlencode({"namespace": system.namespace, "sql": sql})
    request = urllib.request.Request(f"http://{found['httpAddress']}/v1/query?{given}")
    request.add_header("Authorization", f"Bearer {Path(found['tokenFile']).read_text().strip()}")
    request.add_header("traceparent", f"00-{trace}-b7ad6b7169203331-{sampled}")
    with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
        assert answer.read()
    return trace


def _spans(collector: Collector, trace: str, names: set[tuple[str, str]]) -> dict[tuple[str, str], Received]:
    """The trace, once all of these are there."""
    wait_for("spans", lambda: names <= collector.spans(trace).keys(), lambda: str(sorted(collector.spans(trace))))
    return collector.spans(trace)
