"""A real Kafka broker for tests: one node of KRaft, from Maven, in a JVM of 256 MB.

make kafka-broker          installs the pinned version into the cache, once; checksums are in jars.sha256
with broker(folder) as it  a server on a port of its own; it ends with the block, also when this process is killed
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.authorities import Pair
from tests.kafka.jars import installed, java
from tests.ports import free_port
from tidemark_devcluster.control_plane import processes

VERSION = "4.1.1"
SUMS = Path(__file__).parent / "jars.sha256"
START_SECONDS = 120.0
STARTS_MOST = 5
_PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
log.cleaner.dedupe.buffer.size=2097152
log.retention.check.interval.ms=500
log.cleaner.backoff.ms=500
log.segment.delete.delay.ms=500
"""


def install() -> Path:
    """The folder with the broker's jars (43 MB)."""
    artifacts = [f"org.apache.kafka:kafka_2.13:{VERSION}", "org.slf4j:slf4j-simple:1.7.36"]
    return installed("kafka", VERSION, artifacts, SUMS)


@dataclass
class Broker:
    """A broker that can be stopped and started again on its port, with its data."""

    folder: Path
    port: int
    secure_port: int = 0
    """Where it listens for SASL over TLS, if it does."""
    proxied_port: int = 0
    """Where a proxy listens that leads to it, if one does: the broker advertises it to those who come that way."""
    identity: processes.ProcessIdentity | None = None
    _admin: AdminClient | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def admin(self) -> AdminClient:
        """One client for all tests: the requests of a client end when it is collected."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        return self._admin

    def start(self) -> None:
        """Starts it and waits until it answers."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Starts it. It ends with the calling thread."""
        command = [*java(install()), "kafka.Kafka", str(self.folder / "server.properties")]
        pid_file = self.folder / "broker.pid"
        self.identity = processes.start(command, os.environ, self.folder, self._log, pid_file, die_with_starter=True)

    def wait(self) -> None:
        """Waits until it answers."""
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self.identity is None or not self.identity.is_running() or time.monotonic() > deadline:
                self.stop()
                raise AssertionError(f"the broker does not start: {self._log.read_text()[-2000:]}")

    def stop(self, grace: float = 20.0) -> None:
        """Ends it; with `grace` 0 it is killed."""
        if self.identity is not None:
            processes.stop(self.identity, grace)
            self.identity = None

    def kill(self) -> None:
        """Kills it. It runs, though it may not answer yet."""
        assert self.identity is not None
        assert self.identity.is_running(), f"the broker ended: {self._log.read_text()[-2000:]}"
        self.stop(0)

    @property
    def _log(self) -> Path:
        return self.folder / "broker.log"

    def _answers(self) -> bool:
        try:
            return bool(self.admin().list_topics(timeout=1.0).brokers)
        except KafkaException:
            return False


_SECURE = """listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL
inter.broker.listener.name=PLAINTEXT
listener.name.secure.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.secure.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.certificate.chain={certificate}
listener.name.secure.ssl.keystore.key={key}
"""


_PROXIED = """listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
"""


def _listening(text: str, one: Broker, name: str, port: int, advertised: int) -> str:
    """The properties with one more listener."""
    for key, end, at in (("listeners", ",", port), ("advertised.listeners", "\n", advertised)):
        before = f"{key}=PLAINTEXT://127.0.0.1:{one.port}"
        assert before + end in text
        text = text.replace(before + end, f"{before},{name}://127.0.0.1:{at}{end}")
    return text


def _properties(one: Broker, secure: Pair | None, behind: Callable[[int], int] | None) -> str:
    text = _PROPERTIES.format(port=one.port, controller=free_port(), folder=one.folder)
    if behind is not None:
        port = free_port()
        one.proxied_port = behind(port)
        return _listening(text, one, "PROXIED", port, one.proxied_port) + _PROXIED
    if secure is None:
        return text
    one.secure_port = free_port()
    text = _listening(text, one, "SECURE", one.secure_port, one.secure_port)
    certificate, key = (pem.decode().replace("\n", "\\n") for pem in (secure.certificate, secure.key))
    return text + _SECURE.format(certificate=certificate, key=key)


@contextmanager
def broker(folder: Path, secure: Pair | None = None, behind: Callable[[int], int] | None = None) -> Iterator[Broker]:
    """A broker with empty data in a new folder. `secure`: with this certificate it listens for SASL over TLS, too.
    Instead, `behind`: makes a proxy that leads to a port of the broker, and returns the proxy's port."""
    folder.mkdir(parents=True, exist_ok=True)
    for attempt in range(STARTS_MOST):
        one = Broker(folder, free_port())
        text = _properties(one, secure, behind)
        (folder / "server.properties").write_text(text)
        if attempt == 0:
            tool = ["kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c"]
            format = [*java(install()), *tool, str(folder / "server.properties")]
            done = subprocess.run(format, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
        try:
            one.start()
        except AssertionError:
            if attempt == STARTS_MOST - 1:
                raise
            continue
        try:
            yield one
        finally:
            one.stop()
        return


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for the session; tests make topics of their own."""
    with broker(tmp_path_factory.mktemp("kafka")) as one:
        yield one


if __name__ == "__main__":
    print(f"Kafka {VERSION} is in {install()}")
