"""The command line against a scripted gateway: output, stream and exit status."""

from __future__ import annotations

import decimal
import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pyarrow as pa
import pytest

from tests.waiting import BOUND
from tidemark_cli.main import main
from tidemark_cli.output import times
from tidemark_protocol.pb import gateway_pb2 as pb
from tidemark_protocol.pb.gateway_pb2_grpc import GatewayServicer, add_GatewayServicer_to_server
from tidemark_protocol.times import parse

ROWS = pa.table(
    {
        "carrier": pa.array(["UA", None, "evil\x1b[2J"]),
        "flights": pa.array([58665, 32729, 1]),
        "late": pa.array([decimal.Decimal("3.50"), None, decimal.Decimal("0.00")], pa.decimal128(5, 2)),
    }
)


class Scripted(GatewayServicer):
    """Answers every query with ROWS in small chunks, unless `failure` is set."""

    def __init__(self) -> None:
        self.asked: list[pb.QueryRequest] = []
        self.failure: tuple[grpc.StatusCode, str] | None = None
        self.hangs = False
        self.changes: list[pb.FileChange] = []
        self.polls = 0
        self.ended = threading.Event()

    def Query(self, request: pb.QueryRequest, context: grpc.ServicerContext) -> Iterator[pb.QueryReply]:
        self.asked.append(request)
        if ("authorization", "Bearer secret") not in context.invocation_metadata():
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "no")
        if self.failure:
            context.abort(*self.failure)
        # before the first reply: of a call that was canceled meanwhile, gRPC asks for no second one
        if not context.add_callback(self.ended.set):
            self.ended.set()
        names, types = ROWS.column_names, ["string", "bigint", "decimal(5,2)"]
        yield pb.QueryReply(header=pb.QueryHeader(as_of=1000, export="delays", column_names=names, column_types=types))
        if self.hangs:
            self.ended.wait(BOUND)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, ROWS.schema) as writer:
            writer.write_table(ROWS, max_chunksize=2)
        data = sink.getvalue().to_pybytes()
        for i in range(0, len(data), 100):
            yield pb.QueryReply(arrow=data[i : i + 100])

    def Frontiers(self, request: pb.FrontiersRequest, context: grpc.ServicerContext) -> pb.FrontiersReply:
        collections = [
            pb.CollectionFrontiers(namespace="default", name="tpch.orders", kind="table", read=0, write=9_500),
            pb.CollectionFrontiers(namespace="default", name="lake.a", kind="table", behind=3, unit="versions"),
            pb.CollectionFrontiers(namespace="default", name="lake.b", kind="table", behind=3, snapshot_percent=12),
            pb.CollectionFrontiers(namespace="default", name="lake.c", kind="table", behind=3, stopped=True),
            pb.CollectionFrontiers(
                namespace="default",
                name="delays",
                kind="index",
                read=1000,
                write=2**63 - 1,
                hydrated=True,
                replicas=[pb.ReplicaFrontiers(replica="r1")],
            ),
        ]
        early = [pb.OperatorHydration(name="read orders", percent=80), pb.OperatorHydration(name="join", percent=4)]
        new = pb.ReplicaFrontiers(replica="r1", hydrated_percent=42, operators=early)
        collections.append(
            pb.CollectionFrontiers(namespace="default", name="new", kind="index", hydrated_percent=42, replicas=[new])
        )
        return pb.FrontiersReply(now=10_000, collections=collections if request.namespace == "default" else [])

    def Copy(self, request: pb.CopyRequest, context: grpc.ServicerContext) -> pb.CopyReply:
        context.add_callback(self.ended.set)
        self.ended.wait(BOUND)
        return pb.CopyReply()

    def Explain(self, request: pb.ExplainRequest, context: grpc.ServicerContext) -> pb.ExplainReply:
        plan = f"the plan of {request.subject} in {request.namespace}"
        if request.subject == "early":  # the operator of an earlier version knows no forms
            return pb.ExplainReply(text=f"{plan}\n")
        form = "" if request.output in ("", "text") else f" as {request.output}"
        if request.replan:
            replan = "same" if request.subject == "same" else "other"
            return pb.ExplainReply(text=f"{plan} by today's rows\n", output="text", replan=replan)
        measured = " with what replicas report" if request.analyze else ""
        return pb.ExplainReply(text=f"{plan}{form}{measured}\n", output=request.output, analyzed=request.analyze)

    def Why(self, request: pb.WhyRequest, context: grpc.ServicerContext) -> pb.WhyReply:
        replica = pb.Cause(subject="replica r1", kind="replica", write=9_000, says="has taken in all")
        table = pb.Cause(subject="s.t", kind="table", write=9_000, says="on replica r1", holds=True)
        cause = pb.Cause(subject=request.name, kind="index", write=9_000, says="has everything s.t has", holds=True)
        cause.because.extend([table, replica])
        return pb.WhyReply(causes=[cause, pb.Cause(subject="new", kind="dataflow", says="Planning")], now=10_000)

    def Files(self, request: pb.FilesRequest, context: grpc.ServicerContext) -> pb.FilesReply:
        refused = pb.ListedFile(table="t", file="2\x1b.csv", size=8, rows=0, errors=1, state="refused")
        refused.reason, refused.time = "SCHEMA_MISMATCH", 1000
        files = [refused, pb.ListedFile(table="t", file="1.csv", size=9, state="read")]
        for change in self.changes:
            if self.polls > 0:
                change.outcome = "refused" if change.file == "gone.csv" else "done"
                change.message = "FILE_CHANGED: it is gone" if change.outcome == "refused" else ""
        self.polls += 1
        return pb.FilesReply(files=files, bound=1002, changes=self.changes)

    def RetainedTables(
        self, request: pb.RetainedTablesRequest, context: grpc.ServicerContext
    ) -> pb.RetainedTablesReply:
        kept = pb.RetainedTable(name="d", part="v", version=2, kind="Dataflow", owner="u", state="retained")
        kept.instance, kept.bytes, kept.upper = "default", 99, 1000
        lost = pb.RetainedTable(name="e", part="w", version=1, state="unreadable", instance="default", error="no log")
        return pb.RetainedTablesReply(tables=[kept, lost], more=True, unlisted=["other: no replica answers"])

    def DeleteTable(self, request: pb.DeleteTableRequest, context: grpc.ServicerContext) -> pb.DeleteTableReply:
        return pb.DeleteTableReply(location=f"/data/{request.namespace}/{request.table} of {request.instance}")

    def ChangeFile(self, request: pb.ChangeFileRequest, context: grpc.ServicerContext) -> pb.ChangeFileReply:
        self.polls = 0
        change = pb.FileChange(id=7 + len(self.changes), action=request.action, table="t", file=request.file)
        self.changes.append(change)
        return pb.ChangeFileReply(id=change.id)


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    """A gateway on loopback, found beside the kubeconfig as a user's would be."""
    server, scripted = grpc.server(ThreadPoolExecutor(2)), Scripted()
    add_GatewayServicer_to_server(scripted, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    (tmp_path / "token").write_text("secret\n")
    where = {"address": f"127.0.0.1:{port}", "tokenFile": str(tmp_path / "token")}
    (tmp_path / "gateway.json").write_text(json.dumps(where))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    yield scripted
    server.stop(None).wait()


@pytest.mark.parametrize("address", ["10.1.2.3:5", "gateway.example:5", "localhost:5", "[2001:db8::1]:5"])
def test_a_token_goes_beyond_loopback_with_tls_or_not_at_all(
    gateway: Scripted, tmp_path: Path, capsys: pytest.CaptureFixture[str], address: str
) -> None:
    """Whatever the file says; a name may mean anything."""
    (tmp_path / "gateway.json").write_text(json.dumps({"address": address, "tokenFile": str(tmp_path / "token")}))
    assert main(["query", "SELECT 1"]) == 1
    assert f"{address} is not on loopback, so the token needs TLS" in capsys.readouterr().err


def test_a_query_prints_an_aligned_table_and_says_of_when(
    gateway: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows on standard output, the rest on standard error; control characters in data stay harmless."""
    assert main(["query", "SELECT 1", "--as-of", "1970-01-01T00:00:01", "-n", "prod"]) == 0
    out, err = capsys.readouterr()

    assert out.splitlines() == [
        "carrier  flights  late",
        "UA         58665  3.50",
        "NULL       32729  NULL",
        "evil\\x1b[2J        1  0.00",
    ]
    assert "(3 rows of delays as of 1970-01-01T00:00:01.000Z)" in err
    assert gateway.asked == [pb.QueryRequest(namespace="prod", sql="SELECT 1", as_of=1000)]


def test_a_query_prints_json_without_rounding(gateway: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    """One object; decimals as text; no as_of asked for means none sent."""
    assert main(["query", "SELECT 1", "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)

    assert answer["as_of"] == 1000
    assert answer["rows"][0] == {"carrier": "UA", "flights": 58665, "late": "3.50"}
    assert not gateway.asked[0].HasField("as_of")


def test_frontiers_shows_lag_as_kubectl_shows_ages(gateway: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    """Finished collections have none."""
    assert main(["frontiers"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]

    assert [line[0] for line in lines] == ["NAME", "delays", "lake.a", "lake.b", "lake.c", "new", "tpch.orders"]
    assert lines[1][-4:] == ["finished", "<none>", "True", "r1"]
    assert lines[2][-4:-2] == ["3", "versions"]
    assert lines[3][-4:-2] == ["snapshot", "12%"]
    assert lines[4][-3] == "stopped"
    assert lines[5][-2:] == ["42%", "r1"]
    assert lines[6][-4:] == ["0.5s", "<none>", "False", "<none>"]
    assert main(["frontiers", "-n", "empty"]) == 0
    assert capsys.readouterr().out == "No collections found in namespace empty.\n"


def test_frontiers_as_json_has_the_operators_of_a_hydration(
    gateway: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each with its percentage, by replica."""
    assert main(["frontiers", "-o", "json"]) == 0
    found = {c["name"]: c for c in json.loads(capsys.readouterr().out)["collections"]}

    operators = found["new"]["replicas"][0]["operators"]
    assert operators == [{"name": "read orders", "percent": 80}, {"name": "join", "percent": 4}]


def test_explain_prints_the_plan(gateway: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    """The plan is printed as the operator draws it."""
    assert main(["explain", "delays", "-n", "prod"]) == 0
    assert capsys.readouterr().out == "the plan of delays in prod\n"


def test_explain_prints_the_form_that_is_asked_for(gateway: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    """An operator of an earlier version prints text, and nothing that is not asked for."""
    assert main(["explain", "delays", "-n", "prod", "-o", "mermaid"]) == 0
    assert capsys.readouterr().out == "the plan of delays in prod as mermaid\n"
    assert main(["explain", "early", "-n", "prod"]) == 0
    assert capsys.readouterr().out == "the plan of early in prod\n"
    assert main(["explain", "early", "-n", "prod", "-o", "json"]) == 1
    assert "earlier version" in capsys.readouterr().err


def test_explain_analyze_prints_what_replicas_report(gateway: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    """An operator of an earlier version does not, and the command says so."""
    assert main(["explain", "delays", "-n", "prod", "--analyze"]) == 0
    assert capsys.readouterr().out == "the plan of delays in prod with what replicas report\n"
    assert main(["explain", "early", "-n", "prod", "--analyze"]) == 1
    assert "earlier version" in capsys.readouterr().err


def test_a_dry_replan_prints_both_plans(gateway: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    """The one that is there and the one that it would get; one of them where they are the same."""
    assert main(["replan", "delays", "-n", "prod", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert printed.index("the plan of delays in prod\n") < printed.index("the plan of delays in prod by today's rows\n")
    assert main(["replan", "same", "-n", "prod", "--dry-run"]) == 0
    assert "the plan of same in prod\n" not in capsys.readouterr().out
    assert main(["replan", "early", "-n", "prod", "--dry-run"]) == 1
    assert "earlier version" in capsys.readouterr().err


def test_a_strict_or_targeted_query_says_so_to_the_gateway(gateway: Scripted) -> None:
    """And a plain one does not."""
    assert main(["query", "SELECT 1", "--strict"]) == 0
    assert main(["query", "SELECT 1", "--replica", "r2"]) == 0
    assert [(asked.strict, asked.replica) for asked in gateway.asked] == [(True, ""), (False, "r2")]


def test_why_prints_a_tree_in_which_the_way_to_the_reason_is_marked(
    gateway: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output is text, and JSON."""
    assert main(["why", "delays"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "delays (index) complete before 1970-01-01T00:00:09.000Z, 1.0s behind: has everything s.t has",
        "* s.t (table) complete before 1970-01-01T00:00:09.000Z, 1.0s behind: on replica r1",
        "  replica r1 complete before 1970-01-01T00:00:09.000Z, 1.0s behind: has taken in all",
        "new (dataflow) at no known time: Planning",
    ]
    assert main(["why", "delays", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["causes"][0]["because"][0]["holds"] is True


def test_files_are_printed_with_their_states(gateway: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    """The output is a table, with the number of files that are not shown, and JSON."""
    assert main(["files", "drop"]) == 0
    out, err = capsys.readouterr()
    assert [line.split() for line in out.splitlines()] == [
        ["TABLE", "FILE", "SIZE", "ROWS", "ERRORS", "STATE", "REASON", "TIME"],
        ["t", r"2\x1b.csv", "8", "0", "1", "refused", "SCHEMA_MISMATCH", "1970-01-01T00:00:01.000Z"],
        ["t", "1.csv", "9", "<unknown>", "0", "read", "<none>", "<unknown>"],
    ]
    assert err == "1000 more files were read.\n"
    assert main(["files", "drop", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"][0]["reason"] == "SCHEMA_MISMATCH"


def test_a_file_is_let_go_or_read_again(gateway: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    """The command waits for the outcome; a refusal is an error."""
    assert main(["files", "drop", "--release", "1.csv"]) == 0
    assert capsys.readouterr().out == "File t/1.csv was released.\n"
    assert main(["files", "drop", "--reread", "2.csv"]) == 0
    assert capsys.readouterr().out == "File t/2.csv was read again.\n"
    assert main(["files", "drop", "--release", "gone.csv"]) == 1
    assert capsys.readouterr().err == "error: file t/gone.csv stays as it was: FILE_CHANGED: it is gone\n"
    assert [change.action for change in gateway.changes] == ["release", "reread", "release"]
    assert main(["files", "drop", "--release", "1.csv", "--reread", "1.csv"]) == 2


def test_retained_tables_are_printed(gateway: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    """The output is a table, with what could not be listed, and JSON."""
    assert main(["tables", "--retained"]) == 0
    out, err = capsys.readouterr()
    assert [line.split() for line in out.splitlines()] == [
        ["TABLE", "KIND", "STATE", "SIZE", "UPPER", "OWNER", "INSTANCE"],
        ["d/v/v2", "Dataflow", "retained", "99", "1970-01-01T00:00:01.000Z", "u", "default"],
        ["e/w/v1", "<unknown>", "unreadable", "<unknown>", "<unknown>", "<unknown>", "default"],
    ]
    assert err.splitlines() == [
        "There are more tables than are listed.",
        "warning: e/w/v1 cannot be read: no log",
        "warning: not listed: the storage of ComputeInstance other: no replica answers",
    ]
    assert main(["tables", "--retained", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["tables"][0]["state"] == "retained"


def test_a_retained_table_is_deleted(gateway: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tables", "--delete", "d/v/v2", "-n", "ns", "--instance", "one"]) == 0
    assert capsys.readouterr().out == "Table /data/ns/d/v/v2 of one is being deleted.\n"
    assert main(["tables"]) == 2
    assert main(["tables", "--retained", "--delete", "d/v/v2"]) == 2


def test_a_token_of_ones_own_is_shown_instead_of_the_operators(gateway: Scripted, tmp_path: Path) -> None:
    """A projected one, or one that kubectl gets for a ServiceAccount, for the gateway alone."""
    (tmp_path / "token").write_text("not this one")
    (tmp_path / "mine").write_text("secret\n")
    assert main(["query", "SELECT 1", "--token-file", str(tmp_path / "mine")]) == 0


def test_a_service_account_asks_with_a_token_that_the_api_server_makes(
    gateway: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By kubectl; what that refuses is one line."""
    (tmp_path / "token").write_text("not this one")
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(
        "#!/bin/sh\n"
        'wanted="create token reader --namespace prod --audience tidemark-gateway --duration 10m"\n'
        '[ "$*" = "$wanted" ] && echo secret && exit\n'
        'echo "serviceaccounts \\"$3\\" not found" >&2; exit 1\n'
    )
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert main(["query", "SELECT 1", "-n", "prod", "--service-account", "reader"]) == 0
    capsys.readouterr()
    assert main(["query", "SELECT 1", "--service-account", "nobody"]) == 1
    assert capsys.readouterr().err.startswith("error: no token for ServiceAccount nobody: serviceaccounts")


def test_a_refusal_of_the_gateway_is_one_line(gateway: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    """With exit status 1 and nothing on standard output."""
    gateway.failure = (grpc.StatusCode.INVALID_ARGUMENT, "line 1, column 8: column nope does not exist")

    assert main(["query", "SELECT nope"]) == 1
    assert capsys.readouterr() == ("", "error: line 1, column 8: column nope does not exist\n")


def test_a_missing_operator_is_said_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No file, no KUBECONFIG, nobody listening."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    assert main(["frontiers"]) == 1
    assert "make demo" in capsys.readouterr().err
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["frontiers"]) == 1
    assert "make demo" in capsys.readouterr().err
    (tmp_path / "t").write_text("x")
    (tmp_path / "g").write_text(json.dumps({"address": "127.0.0.1:1", "tokenFile": str(tmp_path / "t")}))
    assert main(["frontiers", "--gateway-file", str(tmp_path / "g")]) == 1
    assert "is the operator running?" in capsys.readouterr().err


def test_a_wrong_token_is_refused(gateway: Scripted, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And is not shown."""
    (tmp_path / "token").write_text("guess")

    assert main(["query", "SELECT 1"]) == 1
    assert "guess" not in capsys.readouterr().err


def test_a_closed_output_pipe_is_no_error(gateway: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where all of a small answer waits to be written at the end."""
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert main(["query", "SELECT 1"]) == 0


def test_interrupt_cancels_the_query_at_the_gateway(gateway: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C reaches the one who does the work."""
    gateway.hangs = True

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tidemark_cli.commands.query._print", interrupt)
    assert main(["query", "SELECT 1"]) == 130
    assert gateway.ended.wait(BOUND)


def test_a_query_that_takes_longer_than_its_timeout_is_given_up(
    gateway: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also by the one who does the work; with an error of one line, as where the gateway's own time is over."""
    gateway.hangs = True
    assert main(["query", "SELECT 1", "--timeout", "1s"]) == 1
    assert gateway.ended.wait(BOUND)
    assert capsys.readouterr().err.startswith("error: not answered in time: ")
    gateway.failure = (grpc.StatusCode.DEADLINE_EXCEEDED, "it was computed for 3600 s")
    assert main(["query", "SELECT 1"]) == 1
    assert capsys.readouterr().err == "error: not answered in time: it was computed for 3600 s\n"


def test_a_copy_that_takes_longer_than_its_timeout_is_given_up(
    gateway: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same."""
    assert main(["copy", "delays", "--to", "a", "--format", "csv", "--timeout", "1s"]) == 1
    assert gateway.ended.wait(BOUND)
    assert capsys.readouterr().err.startswith("error: not answered in time: ")


@pytest.mark.parametrize(("text", "expected"), [("30s", 30), ("5m", 300), ("1h30m", 5400), ("90s", 90), ("2h", 7200)])
def test_timeouts_are_written_as_kubectl_writes_them(text: str, expected: float) -> None:
    """Durations are of hours, minutes and seconds."""
    assert times.parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "0s", "30", "s", "-1s", "1.5h", "30s5m", "soon", "³s"])
def test_a_malformed_duration_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A number without a unit, too, before the gateway is looked for."""
    assert main(["query", "SELECT 1", f"--timeout={text}"]) == 2
    assert re.match(r"error: .*'--timeout': .* is not a duration: write 30s", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("text", "expected"), [("5", 5), ("1970-01-01T00:00:01Z", 1000), ("1970-01-01T01:00:01+01:00", 1000)]
)
def test_as_of_takes_numbers_and_times(text: str, expected: int) -> None:
    """UTC unless it says otherwise."""
    assert parse(text) == expected


@pytest.mark.parametrize("text", ["1969-12-31", str(2**63 - 1), str(2**70), "yesterday", "³"])
def test_a_malformed_time_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before 1970, past what 63 bits hold, or no time at all, before the gateway is looked for."""
    assert main(["query", "SELECT 1", "--as-of", text]) == 2
    assert f"'--as-of': '{text}' is" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("behind", "shown"), [(-5000, "0.0s"), (900, "0.9s"), (61_000, "61s"), (600_000, "10m"), (86_400_000 * 3, "3d")]
)
def test_lag_is_short(behind: int, shown: str) -> None:
    """Frontiers ahead of the clock have no lag."""
    assert times.show_lag(10**12, 10**12 - behind) == shown
