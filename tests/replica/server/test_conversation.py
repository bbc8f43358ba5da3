"""The server of a replica and its clients: stages, epochs, malformed frames, Describe. No Spark is started."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from tests.ports import free_port
from tests.replica.plans import copies
from tests.replica.process import ReplicaProcess, ScriptedClient, epochs, wait_until
from tests.waiting import BOUND
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Epoch, GlobalId, WriterTerm
from tidemark_protocol.messages.commands import (
    AllowAllWrites,
    AllowCompaction,
    AllowWrites,
    CancelPeek,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    DropIngestion,
    Hello,
    InitializationComplete,
    InstanceConfig,
    Schedule,
    UpdateConfiguration,
)
from tidemark_protocol.pb import compute_pb2 as pb

EPOCHS = epochs()


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaProcess]:
    process = ReplicaProcess(tmp_path_factory.mktemp("replica"))
    yield process
    process.close()


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., ReplicaProcess]]:
    """Processes of the test's own; they end with it, however it ends."""
    launched = []

    def launch(*arguments: str) -> ReplicaProcess:
        launched.append(ReplicaProcess(tmp_path, *arguments))
        return launched[-1]

    yield launch
    for process in launched:
        process.close()


@pytest.fixture
def config(replica: ReplicaProcess) -> InstanceConfig:
    return InstanceConfig("default", str(replica.home / "shards"))


@pytest.fixture
def client(replica: ReplicaProcess) -> Iterator[ScriptedClient]:
    client = ScriptedClient(replica.address)
    yield client
    client.close()


def code_of(error: grpc.RpcError | None) -> grpc.StatusCode:
    assert error is not None
    code: grpc.StatusCode = error.code()
    return code


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (pb.Frame(version=99), grpc.StatusCode.INVALID_ARGUMENT),
        (pb.Frame(version=1, commands=[pb.Command()]), grpc.StatusCode.INVALID_ARGUMENT),
        (pb.Frame(version=1, responses=[pb.Response()]), grpc.StatusCode.INVALID_ARGUMENT),
        (pb.Frame(version=1, commands=[pb.Command(schedule=pb.Schedule(id="x"))]), grpc.StatusCode.FAILED_PRECONDITION),
    ],
    ids=["unknown version", "unset command", "a response", "no Hello"],
)
def test_must_refuse_a_bad_frame_and_survive(
    replica: ReplicaProcess, client: ScriptedClient, frame: pb.Frame, code: grpc.StatusCode
) -> None:
    """The connection ends with a status that says why; the process goes on and answers others."""
    client.send_frame(frame)

    assert code_of(client.wait_end()) == code
    assert replica.process.poll() is None
    assert client.describe().incarnation


def test_must_refuse_bytes_that_are_no_frame(replica: ReplicaProcess, client: ScriptedClient) -> None:
    """Garbage instead of protobuf is INVALID_ARGUMENT, not an internal error."""
    call = client.channel.stream_stream("/tidemark.compute.v1.Compute/CommandResponseStream")
    with pytest.raises(grpc.RpcError) as refused:
        list(call(iter([b"\xff\xff\xff garbage"])))

    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert client.describe().incarnation


@pytest.mark.usefixtures("client")  # the replica listens once this client is connected
@pytest.mark.parametrize(
    ("megabytes", "code"), [(5, grpc.StatusCode.INVALID_ARGUMENT), (20, grpc.StatusCode.RESOURCE_EXHAUSTED)]
)
def test_must_refuse_frames_that_are_too_large(replica: ReplicaProcess, megabytes: int, code: grpc.StatusCode) -> None:
    """By the replica, which logs the reason; far larger ones by gRPC, before they are in memory."""
    with grpc.insecure_channel(replica.address, options=[("grpc.max_send_message_length", -1)]) as channel:
        stream = channel.stream_stream("/tidemark.compute.v1.Compute/CommandResponseStream")
        with pytest.raises(grpc.RpcError) as refused:
            list(stream(iter([b"\0" * megabytes * 1024 * 1024])))

    assert refused.value.code() == code
    logged = "frame of 5242880 bytes" if megabytes == 5 else "larger than gRPC's limit"
    wait_until(lambda: logged in replica.log_text())


def test_must_speak_the_older_generation_over_a_socket(
    replica: ReplicaProcess, client: ScriptedClient, config: InstanceConfig
) -> None:
    """CreateTimely instead of Hello, one AllowWrites for all; what is of ours alone is out of place."""
    epoch = next(EPOCHS)
    client.send(CreateTimely(epoch), CreateInstance(config), InitializationComplete(), AllowAllWrites())
    wait_until(lambda: client.describe().epoch == epoch)
    assert client.error is None
    client.send(AllowWrites(GlobalId("a"), WriterTerm(1)))

    assert code_of(client.wait_end()) == grpc.StatusCode.FAILED_PRECONDITION
    wait_until(lambda: "older generation" in replica.log_text())


@pytest.mark.parametrize("time", [-1, 2**63 - 1])
def test_must_refuse_an_invalid_time(
    client: ScriptedClient, replica: ReplicaProcess, config: InstanceConfig, time: int
) -> None:
    """Times inside a plan are checked where they come in."""
    client.greet(next(EPOCHS), config, CreateDataflow(copies("d", time, index="i")))

    assert code_of(client.wait_end()) == grpc.StatusCode.INVALID_ARGUMENT
    assert replica.process.poll() is None


def test_must_send_nothing_in_the_creation_stage(client: ScriptedClient, config: InstanceConfig) -> None:
    """Hello and CreateInstance are answered by nothing; a second CreateInstance ends the stream."""
    client.send(Hello("creation", next(EPOCHS)), CreateInstance(config), CreateInstance(config))

    assert code_of(client.wait_end()) == grpc.StatusCode.FAILED_PRECONDITION
    assert client.responses == []


def test_must_take_initialization_complete_once(client: ScriptedClient, config: InstanceConfig) -> None:
    """The second one is out of place."""
    client.greet(next(EPOCHS), config)
    client.send(InitializationComplete())

    assert code_of(client.wait_end()) == grpc.StatusCode.FAILED_PRECONDITION


def test_commands_about_unknown_ids_are_ignored(client: ScriptedClient, config: InstanceConfig) -> None:
    """Either side takes messages about what is gone; the stream goes on."""
    client.greet(next(EPOCHS), config)
    client.send(Schedule(GlobalId("gone")))

    assert client.describe().dataflows == ()
    assert client.error is None


def test_a_newer_client_replaces_the_one_before(replica: ReplicaProcess, config: InstanceConfig) -> None:
    """The newer connection of an equal term is served; the older is told that it was replaced."""
    older, newer = ScriptedClient(replica.address), ScriptedClient(replica.address)
    older.be_served(next(EPOCHS), config)
    epoch = next(EPOCHS)
    newer.greet(epoch, config)

    assert code_of(older.wait_end()) == grpc.StatusCode.ABORTED
    wait_until(lambda: newer.describe().epoch == epoch)
    newer.close()


def test_an_older_client_is_refused_and_told_the_epoch(replica: ReplicaProcess, config: InstanceConfig) -> None:
    """A lower term is refused whatever its connection number; the one that is served is not disturbed."""
    served, late = ScriptedClient(replica.address), ScriptedClient(replica.address)
    epoch = next(EPOCHS)
    served.be_served(epoch, config)
    late.greet(Epoch(0, 999), config)

    error = late.wait_end()
    assert code_of(error) == grpc.StatusCode.FAILED_PRECONDITION
    assert error is not None
    assert dict(error.trailing_metadata())["tidemark-epoch"] == str(epoch)
    assert served.error is None
    served.close()


def test_describe_tells_missing_and_unreadable_shards_apart(client: ScriptedClient, tmp_path: Path) -> None:
    """A shard that does not exist is not created; one that cannot be read carries the error."""
    (tmp_path / "broken" / "_delta_log").mkdir(parents=True)
    (tmp_path / "broken" / "_delta_log" / "00000000000000000000.json").write_text("not a log")
    described = client.describe({"s1": str(tmp_path / "none"), "s2": str(tmp_path / "broken")})

    missing, broken = described.shards
    assert (missing.exists, missing.error) == (False, None)
    assert broken.exists
    assert broken.error
    assert not (tmp_path / "none").exists()


def test_another_configuration_ends_the_process(launch: Callable[..., ReplicaProcess]) -> None:
    """CreateInstance with another configuration than the running one: exit code 10, for the supervisor to restart."""
    replica = launch()
    first, second = ScriptedClient(replica.address), ScriptedClient(replica.address)
    first.be_served(Epoch(1, 1), InstanceConfig("default", "/a"))
    second.greet(Epoch(1, 2), InstanceConfig("default", "/b"))

    assert replica.process.wait(BOUND) == 10


def test_metrics_are_served_where_asked_for(launch: Callable[..., ReplicaProcess]) -> None:
    """On loopback, in Prometheus' text, with what was received."""
    port = free_port()
    replica = launch("--metrics-port", str(port))
    client = ScriptedClient(replica.address)
    client.greet(Epoch(1, 1), InstanceConfig("default", "/a"), Schedule(GlobalId("gone")))

    def page() -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=BOUND) as answer:
                text: str = answer.read().decode()
                return text
        except OSError:
            return ""  # clients are served a moment earlier than metrics

    assert wait_until(lambda: 'tidemark_replica_commands_total{kind="Schedule"} 1.0' in page())


def test_must_log_as_much_as_was_set_last(launch: Callable[..., ReplicaProcess]) -> None:
    """At once, and until it is set otherwise, whoever the client is; what is not named stays as it is."""
    replica = launch()
    config = InstanceConfig("default", "/a")
    first = ScriptedClient(replica.address)
    first.greet(Epoch(1, 1), config, UpdateConfiguration(settings={"log_level": "debug"}), Schedule(GlobalId("gone")))
    assert wait_until(lambda: "command Schedule" in replica.log_text())

    second = ScriptedClient(replica.address)
    second.greet(Epoch(1, 2), config, UpdateConfiguration(max_result_bytes=1), CancelPeek("gone"))
    assert wait_until(lambda: "command CancelPeek" in replica.log_text())
    second.send(
        UpdateConfiguration(settings={"log_level": "info"}), AllowCompaction(GlobalId("gone"), Frontier.empty())
    )
    second.send(UpdateConfiguration(settings={"log_level": "debug"}), DropIngestion(GlobalId("gone")))
    assert wait_until(lambda: "command DropIngestion" in replica.log_text())
    assert "command AllowCompaction" not in replica.log_text()


def test_sigterm_ends_the_process_and_its_scratch(launch: Callable[..., ReplicaProcess], tmp_path: Path) -> None:
    """Exit code 0, nothing left in scratch but the lock; a second process may not share it meanwhile."""
    replica = launch()
    ScriptedClient(replica.address).close()
    rival = launch()

    assert rival.process.wait(BOUND) == 2
    assert replica.stop() == 0
    assert os.listdir(tmp_path / "scratch") == ["lock"]


def test_scratch_of_a_killed_process_is_removed_by_the_next(
    launch: Callable[..., ReplicaProcess], tmp_path: Path
) -> None:
    """SIGKILL leaves files; the next start takes them away."""
    replica = launch()
    client = ScriptedClient(replica.address)
    before = client.describe().incarnation
    replica.kill()
    assert before in os.listdir(tmp_path / "scratch")
    replica.start()
    after = ScriptedClient(replica.address).describe().incarnation

    assert after != before
    assert sorted(os.listdir(tmp_path / "scratch")) == sorted(["lock", after])
