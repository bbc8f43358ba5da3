"""The whole system for a test: an operator process against a real API server, driven by kubectl and the CLI.

Nothing is reached into but what a user can reach: resources, the command line, the Delta tables on disk, and, to do
harm, the pids of processes.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import grpc
import pyarrow as pa
import yaml

from tests.directory_listing import matching, text_of
from tests.e2e.resource_reader import GROUP, VERSION, Reader
from tests.waiting import BOUND, until
from tidemark_cli.main import main as cli
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_operator.orchestrator.local.process_record import Home
from tidemark_operator.process_liveness import ProcessId, is_running
from tidemark_persist import open_shard
from tidemark_protocol.messages.responses import Description
from tidemark_protocol.pb.compute_pb2 import DescribeRequest
from tidemark_protocol.pb.compute_pb2_grpc import ComputeStub
from tidemark_protocol.wire.describe import description_from_proto

CHECKOUT = Path(__file__).parents[2]
# A whole system takes its time on a busy machine. Nothing below asserts on how long anything takes.
PATIENCE_SECONDS = 2 * BOUND
TPCH_SEED = 7
# the command line as a terminal would start it: Ctrl-C reaches it, also where whoever runs the tests ignores it
CLI = ("env", "--default-signal=INT", sys.executable, "-m", "tidemark_cli")
# what users ask again after: the gateway has waited and given up, something changed under it, or it is not there yet
_AGAIN = (
    *("try again", "ask again", "was dropped while", "planning took longer"),
    *("no replica of ComputeInstance", "no gateway answers"),
)


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of the CLI in this process: its exit code, and all that it printed."""
    printed, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(printed), redirect_stderr(errors):
        status = cli(arguments)
    return subprocess.CompletedProcess(arguments, status, printed.getvalue(), errors.getvalue())


def is_to_be_asked_again(message: str) -> bool:
    """Whether a command that failed said so on standard error."""
    return any(why in message for why in _AGAIN)


def wait_for(
    what: str, condition: Callable[[], Any], explain: Callable[[], str] = str, patience: float = PATIENCE_SECONDS
) -> Any:
    """The condition's value once it is true; fails with what it was at the end."""
    deadline = time.monotonic() + patience
    while True:
        began = time.monotonic()
        if found := condition():
            return found
        ended = time.monotonic()
        assert ended < deadline, f"{what} did not come to pass; {explain()}"
        time.sleep(min(1.0, max(0.2, ended - began)))  # looking takes the core that what is waited for needs


@dataclass
class System:
    """One operator and one namespace."""

    plane: ControlPlane
    namespace: str
    home: Path
    """Where the operator's files are."""
    folder: Path
    """Where a module's files are: those that its sources read, and shards."""
    location: str
    """Where shards are."""
    store: Mapping[str, str]
    """The settings by which the test reaches the shards."""
    operator: subprocess.Popen[bytes] | None = None
    arguments: tuple[str, ...] = ()
    """Further arguments of the operator."""

    # --- processes ---

    def start_operator(self) -> None:
        """Starts it, and waits until its gateway can be found. Clients find that of the one before it until then."""
        before = self._gateway_file()
        self.launch_operator()
        wait_for("the gateway", lambda: self._gateway_file() not in (None, before), self.log)

    def launch_operator(self) -> None:
        with (self.home / "operator.log").open("ab") as log:
            self.operator = subprocess.Popen(self.operator_command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def _gateway_file(self) -> tuple[int, int] | None:
        """Another value for each file that an operator has written; None where there is none."""
        try:
            found = (self.home / "gateway.json").stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns

    def operator_command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "tidemark_operator", "--orchestrator", "process"),
            *("--kubeconfig", str(self.plane.kubeconfig), "--state-dir", str(self.home / "operator")),
            *("--namespace", self.namespace, "--lease-namespace", self.namespace),
            *("--gateway-file", str(self.home / "gateway.json")),
            *self.arguments,
        ]

    def kill_operator(self) -> None:
        assert self.operator is not None
        self.operator.send_signal(signal.SIGKILL)
        self.operator.wait()
        self.operator = None

    def replica_pids(self) -> dict[str, int]:
        """The process of each replica's home, where one is recorded."""
        found = {}
        for path in matching(self.home / "operator" / "replicas", "*/process.json"):
            with suppress(FileNotFoundError):  # the process has ended meanwhile
                found[path.parent.name] = int(json.loads(path.read_text())["pid"])
        return found

    def replica_says(self) -> Description:
        """The replica's answer at its own socket: its status says the same a little later."""
        (pid,) = self.replica_pids().values()
        return self.process_says(pid)

    def process_says(self, pid: int) -> Description:
        """A replica's process of itself."""
        command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        with grpc.insecure_channel(command[command.index("--listen") + 1]) as channel:
            return description_from_proto(ComputeStub(channel).Describe(DescribeRequest(), timeout=PATIENCE_SECONDS))

    def kill_replica(self, name: str = "r1") -> None:
        """SIGKILL to the replica's own process, as an out-of-memory killer would. It waits for one that runs."""
        uid = self.get("computereplica", name)["metadata"]["uid"]
        home = Home(self.home / "operator" / "replicas" / uid)

        def killed() -> ProcessId | None:
            record = home.record()  # the operator forgets a process that has died a little later
            if record is None or not is_running(record.process):
                return None
            with suppress(ProcessLookupError):
                os.kill(record.process.pid, signal.SIGKILL)
                return record.process
            return None

        process = wait_for(f"a process of replica {name}", killed, self.log)
        until(lambda: not is_running(process))

    def forget_failures(self) -> None:
        """While no operator runs: as if replicas had been up for a minute, so that the next operator starts those that
        died without a long pause."""
        for path in matching(self.home / "operator" / "replicas", "*"):
            home = Home(path)
            home.write_attempts(replace(home.attempts(), failures=0))

    def log(self) -> str:
        """The ends of all logs, for a failed test."""
        logs = [self.home / "operator.log", *matching(self.home / "operator", "planner/log")]
        logs += matching(self.home / "operator", "replicas/*/log")
        return "\n".join(f"--- {path}\n{text_of(path)[-3000:]}" for path in logs)

    def stop(self) -> None:
        """Ends the operator and all that it left running."""
        if self.operator is not None:
            self.operator.terminate()
            self.operator.wait(PATIENCE_SECONDS)
        stop = [sys.executable, "-m", "tidemark_operator.orchestrator.local.stop", str(self.home / "operator")]
        subprocess.run(stop, check=True, timeout=PATIENCE_SECONDS)

    # --- resources ---

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.plane.kubectl("-n", self.namespace, *arguments, stdin=stdin)

    def apply(self, kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> None:
        body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(body))

    def base(self, memory: str = "1536Mi", **instance: Any) -> None:
        """An instance, with these fields of its spec besides, and a replica."""
        spec = {"storage": {"location": self.location}, **instance}
        self.apply("ComputeInstance", "default", spec)
        limits = {"resources": {"limits": {"cpu": 2, "memory": memory}}}
        self.apply("ComputeReplica", "r1", {"instance": "default", **limits})

    def dataflow(self, name: str, sql: str, **export: Any) -> None:
        """A Dataflow of the short form, by default with a materialized view."""
        self.apply("Dataflow", name, {"instance": "default", "sql": sql, **(export or {"materializedView": {}})})

    def tpch(self, scale_factor: float = 0.001, transactions_per_second: int = 20, tick: str = "1s") -> None:
        generator = {"scaleFactor": scale_factor, "transactionsPerSecond": transactions_per_second, "seed": TPCH_SEED}
        self.apply("DataSource", "tpch", {"instance": "default", "tick": tick, "loadGenerator": {"tpch": generator}})

    @contextmanager
    def emptied_after(self, folder: Path) -> Iterator[System]:
        """This system for one module, whose files and shards are below `folder`. All objects of the operator's kinds
        are deleted afterwards, importers first, and their replicas have ended."""
        self.folder, self.location, self.arguments = folder, str(folder / "shards"), ()
        try:
            yield self
        finally:
            if self.operator is None or self.operator.poll() is not None:  # a test that failed has not started it again
                self.start_operator()
            # the last are tombstones of tables that no replica had time to delete: no later instance has their storage
            for kind in ("dataflows", "datasources", "computereplicas", "computeinstances", "controllerrevisions"):
                self.kubectl("delete", kind, "--all", f"--timeout={PATIENCE_SECONDS}s")
            wait_for("replicas to end", lambda: not self.replica_pids(), self.log)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        return Reader(self.plane.kubeconfig).get(self.namespace, kind, name)

    def condition(self, kind: str, name: str, type_: str) -> dict[str, Any]:
        """The condition, if it is about the resource as it is now; else nothing."""
        body = self.get(kind, name)
        for condition in body.get("status", {}).get("conditions", []):
            if condition["type"] == type_ and condition["observedGeneration"] == body["metadata"]["generation"]:
                return dict(condition)
        return {}

    def wait_condition(self, kind: str, name: str, type_: str, status: str = "True", reason: str | None = None) -> str:
        """Waits for the condition and returns its message."""

        def holds() -> dict[str, Any] | None:
            found = self.condition(kind, name, type_)
            fits = found.get("status") == status and reason in (None, found.get("reason"))
            return found if fits else None

        def explain() -> str:
            return json.dumps(self.get(kind, name).get("status", {}), indent=1) + self.log()

        return str(wait_for(f"{kind}/{name} {type_}={status}", holds, explain)["message"])

    def wait_hydrated(self, *names: str) -> None:
        for name in names:
            self.wait_condition("dataflow", name, "Hydrated")

    def wait_up_to_date(self, name: str) -> None:
        """Waits until the revision of the Dataflow's present spec serves."""

        def serves() -> bool:
            found = self.condition("dataflow", name, "Progressing")
            return found.get("status") == "False" and found.get("reason") in ("UpToDate", "Finished")

        wait_for(f"dataflow/{name} to be up to date", serves, self.log)
        self.wait_condition("dataflow", name, "Ready")

    def frontier(self, name: str) -> int:
        """The write frontier in the Dataflow's status; -1 where there is none yet."""
        return int(self.get("dataflow", name).get("status", {}).get("writeFrontier", {}).get("time", -1))

    def live_frontiers(self) -> dict[str, dict[str, Any]]:
        """The frontiers that `kubectl tidemark frontiers` shows, by name."""
        document = json.loads(self.tidemark("frontiers", "-n", self.namespace, "-o", "json").stdout)
        return {c["name"]: c for c in document.get("collections", [])}

    # --- answers ---

    def tidemark(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command to its end; given again, as users would, where it says that it may be.

        It runs in this process: tests give some hundred commands, and a program of its own takes most of a second of
        CPU to start. Programs that tests interrupt, or read from, are processes (`subscription.py`).
        """

        def done() -> subprocess.CompletedProcess[str] | None:
            ran = run_command(*arguments, "--gateway-file", str(self.home / "gateway.json"))
            return None if ran.returncode == 1 and is_to_be_asked_again(ran.stderr) else ran

        ran: subprocess.CompletedProcess[str] = wait_for(f"`tidemark {' '.join(arguments)}`", done, self.log)
        return ran

    def explain(self, subject: str, *more: str) -> str:
        """The text that the CLI prints, on both streams."""
        done = self.tidemark("explain", subject, "-n", self.namespace, *more)
        return done.stdout + done.stderr

    def query(self, sql: str, as_of: int | None = None) -> dict[str, Any]:
        """The answer as the CLI prints it in JSON."""
        at = ["--as-of", str(as_of)] if as_of is not None else []
        done = self.tidemark("query", sql, "-n", self.namespace, "-o", "json", *at)
        # reports show the end of a long message
        assert done.returncode == 0, f"{self.log()}\n{sql}: {done.stderr}"
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    @property
    def shards(self) -> Path:
        return Path(self.location)

    def shard(self, name: str, part: str, version: int = 1) -> Path:
        """Where the shard of a source's table or of a Dataflow's export is, on disk."""
        return self.shards / self.namespace / name / part / f"v{version}"

    def upper(self, name: str, part: str) -> int:
        """The upper of a shard, read from the Delta table: unlike a status, it is never late."""
        location = f"{self.location}/{self.namespace}/{name}/{part}/v1"
        return int(open_shard(location, dict(self.store) or None).refresh().upper)

    def contents(self, name: str, part: str, as_of: int) -> pa.Table:
        """A shard's consolidated contents, read off the Delta table, on disk or not."""
        location = f"{self.location}/{self.namespace}/{name}/{part}/v1"
        return open_shard(location, dict(self.store) or None).snapshot(as_of)


def revisions(system: System, dataflow: str) -> list[str]:
    """Names of the stored revisions that the Dataflow owns."""
    owner = "{range .items[*]}{.metadata.ownerReferences[0].name} {.metadata.name}{'\\n'}{end}"
    listed = system.kubectl("get", "controllerrevisions", "-o", f"jsonpath={owner}".replace("'\\n'", '"\\n"'))
    return [line.split()[1] for line in listed.splitlines() if line.split()[0] == dataflow]


@contextmanager
def new_namespace(plane: ControlPlane) -> Iterator[str]:
    name = f"e2e-{secrets.token_hex(4)}"
    plane.kubectl("create", "namespace", name)
    yield name
    plane.kubectl("delete", "namespace", name, "--wait=false")


@contextmanager
def running(
    plane: ControlPlane,
    namespace: str,
    home: Path,
    *arguments: str,
    location: str | None = None,
    store: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[System]:
    """A system whose operator runs, with these arguments besides, its shards on disk unless said otherwise; nothing of
    it is left afterwards."""
    plane.serve(CHECKOUT / "crds")
    system = System(plane, namespace, home, home, location or str(home / "shards"), store, arguments=arguments)
    try:
        system.start_operator()
        yield system
    finally:
        system.stop()
