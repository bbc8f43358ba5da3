"""The commands that go on: live tables on a pseudo-terminal, and `--watch` in a pipe, with gateways that come and
go."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.cli.test_commands import Scripted
from tests.cli.test_subscribe import stream
from tests.waiting import BOUND, until
from tidemark_cli.main import main
from tidemark_protocol.pb import gateway_pb2 as pb
from tidemark_protocol.pb.gateway_pb2_grpc import GatewayServicer, add_GatewayServicer_to_server

LINES = 12
ENTERS, LEAVES, HIDES, SHOWS = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25l", "\x1b[?25h"
HEADER = pb.SubscribeReply(
    header=pb.SubscribeHeader(as_of=1000, column_names=["name", "n"], column_types=["string", "int"])
)
MANY = [(f"row {n:03}", n, 1000, 1, n) for n in range(100)]


class Gateways:
    """One gateway after the other, each found by the same file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server: Any = None
        self.environment = {**os.environ, "KUBECONFIG": str(folder / "kubeconfig"), "TERM": "xterm-256color"}
        for name in ("NO_COLOR", "COLUMNS", "LINES"):
            self.environment.pop(name, None)

    def serve(self, servicer: GatewayServicer) -> None:
        self.stop()
        self._server = grpc.server(ThreadPoolExecutor(4))
        add_GatewayServicer_to_server(servicer, self._server)
        port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        (self._folder / "token").write_text("secret")
        where = {"address": f"127.0.0.1:{port}", "tokenFile": str(self._folder / "token")}
        (self._folder / "gateway.json").write_text(json.dumps(where))

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop(None).wait()
            (self._folder / "gateway.json").unlink()
            self._server = None


@pytest.fixture
def gateways(tmp_path: Path) -> Iterator[Gateways]:
    there = Gateways(tmp_path)
    yield there
    there.stop()


class Terminal:
    """A program on a pseudo-terminal, and all that it has written."""

    def __init__(self, gateways: Gateways, *words: str) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, 160, 0, 0))
        self.slave, self.before = slave, termios.tcgetattr(slave)
        command = ["env", "--default-signal=INT", sys.executable, "-m", "tidemark_cli", *words]
        self.program = subprocess.Popen(
            command,
            env=gateways.environment,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self._written = bytearray()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # as the end of a terminal is told
            while part := os.read(self.master, 4096):
                self._written += part

    @property
    def written(self) -> str:
        return bytes(self._written).decode(errors="replace").replace("\r\n", "\n")

    def shows(self, text: str) -> None:
        until(lambda: text in self.written)

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def end(self) -> int:
        """The exit status, once all is read. The terminal is as it was."""
        status = self.program.wait(BOUND)
        assert termios.tcgetattr(self.slave) == self.before
        os.close(self.slave)
        self._reader.join(BOUND)
        return status

    def close(self) -> None:
        self.program.kill()
        self.program.wait()
        with contextlib.suppress(OSError):
            os.close(self.slave)
        self._reader.join(BOUND)
        os.close(self.master)


@pytest.fixture
def on_terminal(gateways: Gateways) -> Iterator[Callable[..., Terminal]]:
    with contextlib.ExitStack() as open:

        def start(*words: str) -> Terminal:
            terminal = Terminal(gateways, *words)
            open.callback(terminal.close)
            return terminal

        yield start


class Subscribes(Scripted):
    """Sends the batches, then what is put on `more`, until `ended`."""

    def __init__(self, *batches: pb.SubscribeBatch, ends: bool = False) -> None:
        super().__init__()
        self._batches, self._ends, self.over = batches, ends, threading.Event()
        self.requests: list[pb.SubscribeRequest] = []

    def Subscribe(self, request: pb.SubscribeRequest, context: grpc.ServicerContext) -> Iterator[pb.SubscribeReply]:
        self.requests.append(request)
        context.add_callback(self.over.set)
        yield HEADER
        for batch in self._batches:
            yield pb.SubscribeReply(batch=batch)
        if not self._ends:
            self.over.wait(BOUND)


def snapshot(*rows: tuple[str, int, int, int, int], upper: int = 1001) -> pb.SubscribeBatch:
    return pb.SubscribeBatch(lower=1000, upper=upper, arrow=stream(*rows))


def last_frame(written: str) -> list[str]:
    """The text that is left on the terminal once its own screen is back."""
    _, _, after = written.rpartition(LEAVES)
    return [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line).rstrip() for line in after.splitlines()]


def test_rows_are_live_in_order_and_fit_the_terminal(gateways: Gateways, on_terminal: Callable[..., Terminal]) -> None:
    """Only the rows of complete times are shown; the last frame stays."""
    changes = pb.SubscribeBatch(
        lower=1001, upper=2001, arrow=stream(("row 099", 99, 2000, -1, 0), ("last", 7, 2000, 2, 1))
    )
    gateways.serve(Subscribes(snapshot(*MANY), changes, ends=True))
    terminal = on_terminal("subscribe", "delays", "--live", "--sort-by", "-n")
    assert terminal.end() == 0
    written = terminal.written
    assert [written.count(each) for each in (ENTERS, LEAVES)] == [1, 1]
    assert written.rfind(SHOWS) > written.rfind(HIDES)
    frame = last_frame(written)
    assert [line.split() for line in frame if line][:3] == [["name", "n"], ["row", "098", "98"], ["row", "097", "97"]]
    assert "101 rows, 9 shown, as of 1970-01-01T00:00:02.000Z" in frame
    assert len([line for line in frame if line.startswith("row")]) == LINES - 3


def test_ctrl_c_leaves_the_terminal_as_it_was(gateways: Gateways, on_terminal: Callable[..., Terminal]) -> None:
    """And ends the subscribe at the gateway. No value moves the cursor."""
    subscribes = Subscribes(snapshot(("evil\x1b[2J\x9b\u202e", 1, 1000, 1, 5), ("日本", 2, 1000, 1, 6)))
    gateways.serve(subscribes)
    terminal = on_terminal("subscribe", "delays", "--live")
    terminal.shows("2 rows")
    terminal.type(b"\x03")
    assert terminal.end() == 130
    assert subscribes.over.wait(BOUND)
    written = terminal.written
    assert r"evil\x1b[2J\x9b\u202e" in written
    assert "日本" in last_frame(written)[2]
    assert written.rfind(SHOWS) > written.rfind(HIDES)
    assert "canceled" in written
    assert "Traceback" not in written


def test_sigterm_leaves_the_terminal_as_it_was(gateways: Gateways, on_terminal: Callable[..., Terminal]) -> None:
    gateways.serve(Subscribes(snapshot(("a", 1, 1000, 1, 5))))
    terminal = on_terminal("subscribe", "delays", "--live")
    terminal.shows("1 row")
    terminal.program.send_signal(signal.SIGTERM)
    assert terminal.end() == 143
    assert terminal.written.rfind(SHOWS) > terminal.written.rfind(HIDES)
    assert terminal.written.count(LEAVES) == 1


def test_crash_a_gateway_that_is_restarted_is_followed_anew(
    gateways: Gateways, on_terminal: Callable[..., Terminal]
) -> None:
    """The restarted gateway may have other rows: all of them are read again, with the snapshot, and those before are
    gone."""
    gateways.serve(Subscribes(snapshot(("before", 1, 1000, 1, 5))))
    terminal = on_terminal("subscribe", "delays", "--live")
    terminal.shows("before")
    gateways.stop()
    terminal.shows("trying again")
    second = Subscribes(snapshot(("after", 1, 1000, 1, 5), ("after", 1, 1000, 1, 6)), ends=True)
    gateways.serve(second)
    assert terminal.end() == 0
    frame = [line for line in last_frame(terminal.written) if line]
    assert [line.split() for line in frame[:3]] == [["name", "n"], ["after", "1"], ["after", "1"]]
    assert frame[3].startswith("2 rows")
    assert not second.requests[0].without_snapshot


class Begins(Subscribes):
    """Refuses the first calls, as a gateway does that has just begun."""

    def __init__(self, *batches: pb.SubscribeBatch) -> None:
        super().__init__(*batches, ends=True)
        self.refusals = [("planner", "57P03"), ("replica", "57P03")]

    def Subscribe(self, request: pb.SubscribeRequest, context: grpc.ServicerContext) -> Iterator[pb.SubscribeReply]:
        if self.refusals:
            refuse(context, *self.refusals.pop())
        return super().Subscribe(request, context)

    def Frontiers(self, request: pb.FrontiersRequest, context: grpc.ServicerContext) -> pb.FrontiersReply:
        if self.refusals:
            refuse(context, *self.refusals.pop())
        collections = [pb.CollectionFrontiers(namespace="default", name="back", kind="table", write=1000)]
        return pb.FrontiersReply(now=1000, collections=collections)


def refuse(context: grpc.ServicerContext, text: str, sqlstate: str) -> None:
    context.set_trailing_metadata((("tidemark-sqlstate", sqlstate),))
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"{text} \x1b[2J: not yet")


def test_crash_a_gateway_that_has_just_begun_is_asked_until_it_answers(
    gateways: Gateways, on_terminal: Callable[..., Terminal]
) -> None:
    """Neither its planner nor its replicas may be there at once. The time of --as-of may be too old by then: the table
    begins with the newest one."""
    first = Subscribes(snapshot(("before", 1, 1000, 1, 5)))
    gateways.serve(first)
    terminal = on_terminal("subscribe", "delays", "--live", "--as-of", "1000", "--up-to", "5000")
    terminal.shows("before")
    second = Begins(snapshot(("after", 1, 1000, 1, 5)))
    gateways.serve(second)
    assert terminal.end() == 0
    assert last_frame(terminal.written)[1].split() == ["after", "1"]
    assert second.refusals == []
    assert [(r.HasField("as_of"), r.up_to) for r in (*first.requests, *second.requests)] == [
        (True, 5000),
        (False, 5000),
    ]


def test_data_in_error_end_a_live_table(gateways: Gateways, on_terminal: Callable[..., Terminal]) -> None:
    """Their status is that of a gateway that has just begun; their SQLSTATE is not."""
    gateways.serve(Subscribes(snapshot(("before", 1, 1000, 1, 5))))
    terminal = on_terminal("subscribe", "delays", "--live")
    terminal.shows("before")
    second = Begins()
    second.refusals = [("DIVIDE_BY_ZERO", "22000")]
    gateways.serve(second)
    assert terminal.end() == 1
    assert "error: DIVIDE_BY_ZERO" in terminal.written


def test_a_live_table_has_as_many_rows_as_it_can_hold(
    gateways: Gateways, on_terminal: Callable[..., Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More are an error that says what to do, and a column that is not there is another."""
    many = [(f"{n}", n, 1000, 1, n) for n in range(100_001)]
    gateways.serve(
        Subscribes(*(snapshot(*many[at : at + 20_000], upper=1000) for at in range(0, 100_001, 20_000)), snapshot())
    )
    terminal = on_terminal("subscribe", "delays", "--live")
    assert terminal.end() == 1
    assert "delays has more than 100000 rows" in terminal.written
    other = on_terminal("subscribe", "delays", "--live", "--sort-by", "nope")
    assert other.end() == 1
    assert "has no column nope to sort by: it has name, n" in other.written


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--live"], "--live needs a terminal"),
        (["--live", "-o", "json"], "leave out --output"),
        (["--live", "--no-snapshot"], "leave out --output and --no-snapshot"),
        (["--sort-by", "n"], "--sort-by belongs to --live"),
    ],
)
def test_a_live_table_needs_a_terminal_and_all_rows(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["subscribe", "delays", *words]) == 2
    assert message in capsys.readouterr().err


class Advancing(Scripted):
    """Frontiers that advance with each call, of one collection of two."""

    calls = 0

    def Frontiers(self, request: pb.FrontiersRequest, context: grpc.ServicerContext) -> pb.FrontiersReply:
        self.calls += 1
        collections = [
            pb.CollectionFrontiers(namespace="default", name="moves", kind="table", write=self.calls * 1000),
            pb.CollectionFrontiers(namespace="default", name="rests", kind="index", write=500, hydrated_percent=42),
        ]
        return pb.FrontiersReply(now=self.calls * 1000, collections=collections)


@pytest.fixture
def in_pipe(gateways: Gateways) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    with contextlib.ExitStack() as open:

        def start(*words: str) -> subprocess.Popen[str]:
            command = ["env", "--default-signal=INT", sys.executable, "-m", "tidemark_cli", *words]
            pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            program = open.enter_context(subprocess.Popen(command, env=gateways.environment, text=True, **pipes))
            open.callback(program.kill)
            return program

        yield start


def test_crash_a_watch_goes_on_where_its_gateway_was_restarted(
    gateways: Gateways, in_pipe: Callable[..., subprocess.Popen[str]]
) -> None:
    """In a pipe it prints rows that changed, and each reason once; Ctrl-C ends it."""
    gateways.serve(Advancing())
    program = in_pipe("frontiers", "--watch", "-o", "json")
    assert program.stdout is not None
    assert program.stderr is not None
    assert [json.loads(program.stdout.readline())["name"] for _ in range(3)] == ["moves", "rests", "moves"]
    gateways.stop()
    assert "trying again: " in program.stderr.readline()
    gateways.serve(Advancing())
    assert json.loads(program.stdout.readline())["write"] == "1000"
    program.send_signal(signal.SIGINT)
    assert program.wait(BOUND) == 130
    assert "Traceback" not in program.stderr.read()


def test_a_watch_in_a_pipe_prints_no_row_again_that_only_lags(
    gateways: Gateways, in_pipe: Callable[..., subprocess.Popen[str]]
) -> None:
    gateways.serve(Advancing())
    program = in_pipe("frontiers", "--watch")
    assert program.stdout is not None
    printed = [program.stdout.readline().split()[0] for _ in range(5)]
    assert printed == ["NAME", "moves", "rests", "moves", "moves"]


def test_crash_a_watch_asks_a_gateway_that_has_just_begun(
    gateways: Gateways, in_pipe: Callable[..., subprocess.Popen[str]]
) -> None:
    """An answer of the watch meanwhile does not move the cursor of the terminal that standard error may be."""
    gateways.serve(Advancing())
    program = in_pipe("frontiers", "--watch", "-o", "json")
    assert program.stdout is not None
    assert program.stderr is not None
    assert json.loads(program.stdout.readline())["name"] == "moves"
    gateways.serve(Begins())
    while json.loads(program.stdout.readline() or '{"name": "back"}')["name"] != "back":
        pass
    program.send_signal(signal.SIGINT)
    assert program.wait(BOUND) == 130
    noted = program.stderr.read()
    assert r"trying again: replica \x1b[2J: not yet" in noted
    assert r"trying again: planner \x1b[2J: not yet" in noted
    assert "\x1b" not in noted


def test_a_watch_is_live_on_a_terminal(gateways: Gateways, on_terminal: Callable[..., Terminal]) -> None:
    gateways.serve(Advancing())
    terminal = on_terminal("frontiers", "-w")
    terminal.shows("1970-01-01T00:00:02.000Z")
    terminal.type(b"\x03")
    assert terminal.end() == 130
    frame = last_frame(terminal.written)
    assert [line.split()[0] for line in frame if line][:3] == ["NAME", "moves", "rests"]
    assert "████░░░░░░ 42%" in next(line for line in frame if line.startswith("rests"))


def test_a_watch_ends_where_nobody_reads(gateways: Gateways, in_pipe: Callable[..., subprocess.Popen[str]]) -> None:
    """head -1`.|The reader ends as that of `... --watch | head -1` does. | head -1`."""
    gateways.serve(Advancing())
    program = in_pipe("frontiers", "--watch")
    assert program.stdout is not None
    assert program.stdout.readline().startswith("NAME")
    program.stdout.close()
    assert program.wait(BOUND) == 0


def test_a_first_call_that_fails_is_an_error(gateways: Gateways, in_pipe: Callable[..., subprocess.Popen[str]]) -> None:
    program = in_pipe("frontiers", "--watch")
    assert program.wait(BOUND) == 1


class Busy(Scripted):
    def Top(self, request: pb.TopRequest, context: grpc.ServicerContext) -> pb.TopReply:
        spaces = ["default", "other"] if request.all_namespaces else [request.namespace]
        dataflows = [
            pb.DataflowUsage(namespace=space, instance="default", replica="r1", **of)
            for space in spaces
            for of in (
                dict[str, Any](name="big", hydrated=True, bytes=34 << 20, cores=0.012, records=5, steps=7),
                dict[str, Any](name="hot", hydrated=True, bytes=4096, cores=1.5, records=50, steps=8),
                dict[str, Any](name="new", hydrated_percent=42),
            )
        ]
        return pb.TopReply(dataflows=dataflows, now=1000)


def test_top_lists_dataflows_by_state_or_cpu(gateways: Gateways, in_pipe: Callable[..., subprocess.Popen[str]]) -> None:
    gateways.serve(Busy())
    assert in_pipe("top").communicate(timeout=BOUND)[0].splitlines() == [
        "NAME  INSTANCE  REPLICA  CPU(cores)  STATE(bytes)  RECORDS    STEPS      HYDRATED",
        "big   default   r1       12m         34Mi          5          7          True",
        "hot   default   r1       1500m       4096          50         8          True",
        "new   default   r1       <unknown>   <unknown>     <unknown>  <unknown>  42%",
    ]
    by_cpu = in_pipe("top", "-A", "--sort-by", "cpu", "-o", "csv").communicate(timeout=BOUND)[0].splitlines()
    assert by_cpu[0].startswith("namespace,name,instance,replica,cores,bytes")
    assert [line.split(",")[:2] for line in by_cpu[1:]] == [
        [space, name] for name in ("hot", "big", "new") for space in ("default", "other")
    ]
    assert by_cpu[-1] == "other,new,default,r1,,,,,,false,42"
