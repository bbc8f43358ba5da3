"""Kafka Connect with Debezium's connector for PostgreSQL and Apicurio's converters, from Maven: one worker in a JVM of
256 MB.

make kafka-connect           installs the pinned versions into the cache, once; checksums are in connect_jars.sha256 and
                             converter_jars.sha256
with connect(kafka, folder)  a worker without connectors; it ends with the block, also when this process is killed

The worker keeps connectors and their offsets in topics of the broker, as those in production do. After a kill it begins
again at the offsets that it wrote last, so connectors write events again.
"""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kafka import broker
from tests.kafka.broker import Broker
from tests.kafka.jars import installed, java
from tests.ports import free_port
from tidemark_devcluster.control_plane import processes

DEBEZIUM = "3.6.1.Final"
APICURIO = "2.6.8.Final"
SUMS, CONVERTER_SUMS = (Path(__file__).parent / f"{name}_jars.sha256" for name in ("connect", "converter"))
_IN_CONNECT = (
    "kafka-clients,connect-api,connect-json,zstd-jni,lz4-java,snappy-java,slf4j-api,jackson-core,jackson-databind,"
    "jackson-annotations,jackson-datatype-jdk8,commons-lang3"
)
"""The jars that the converters need, and Connect has in newer versions."""
START_SECONDS = 180.0
_PROPERTIES = """bootstrap.servers={brokers}
group.id=connect-{number}
listeners=http://127.0.0.1:{port}
plugin.discovery=only_scan
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
config.storage.topic=connect-configs
offset.storage.topic=connect-offsets
status.storage.topic=connect-status
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
offset.storage.partitions=1
status.storage.partitions=1
offset.flush.interval.ms={flush_ms}
scheduled.rebalance.max.delay.ms=0
"""


def install() -> Path:
    """The folder with the jars of Connect and the connector."""
    artifacts = [
        f"org.apache.kafka:connect-runtime:{broker.VERSION}",
        f"org.apache.kafka:connect-json:{broker.VERSION}",
        f"io.debezium:debezium-connector-postgres:{DEBEZIUM}",
        "org.slf4j:slf4j-simple:1.7.36",
    ]
    return installed("kafka-connect", f"{broker.VERSION}-{DEBEZIUM}", artifacts, SUMS)


def install_converters() -> Path:
    """The folder with the jars of the converters, beside those of Connect."""
    artifacts = [f"io.apicurio:apicurio-registry-utils-converter:{APICURIO}"]
    return installed("kafka-converters", APICURIO, artifacts, CONVERTER_SUMS, f"-DexcludeArtifactIds={_IN_CONNECT}")


@dataclass
class Worker:
    """A worker of Kafka Connect that can be killed and started again. `flush_ms`: how often it writes the offsets from
    which it begins again."""

    folder: Path
    kafka: Broker
    flush_ms: int = 1_000
    port: int = 0
    identity: processes.ProcessIdentity | None = None
    starts: int = 0

    def start(self) -> None:
        """Starts it and waits until it answers. Each start is another group: it need not wait until the broker has
        noticed that the worker before is gone."""
        self.starts, self.port = self.starts + 1, free_port()
        file = self.folder / "worker.properties"
        given = {"brokers": self.kafka.address, "number": self.starts, "port": self.port, "flush_ms": self.flush_ms}
        file.write_text(_PROPERTIES.format(**given))
        command = [*java(install(), install_converters()), "org.apache.kafka.connect.cli.ConnectDistributed", str(file)]
        pid_file = self.folder / "worker.pid"
        self.identity = processes.start(command, os.environ, self.folder, self.log, pid_file, die_with_starter=True)
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if not self.identity.is_running() or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"Kafka Connect does not start: {self.log.read_text()[-4000:]}")
            time.sleep(0.1)

    def kill(self) -> None:
        if self.identity is not None:
            processes.stop(self.identity, 0)
            self.identity = None

    @property
    def log(self) -> Path:
        return self.folder / "worker.log"

    def configure(self, name: str, config: Mapping[str, str]) -> None:
        """Makes the connector, or changes it."""
        self._ask("PUT", f"/connectors/{name}/config", config)

    def failures(self, name: str) -> list[Any]:
        """The connector's tasks that failed; none while the worker does not know."""
        try:
            tasks = self._ask("GET", f"/connectors/{name}/status")["tasks"]
        except OSError:
            return []
        return [task for task in tasks if task["state"] == "FAILED"]

    def _answers(self) -> bool:
        try:
            self._ask("GET", "/connectors")
            return True
        except OSError:
            return False

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)


@contextmanager
def connect(kafka: Broker, folder: Path, **options: Any) -> Iterator[Worker]:
    folder.mkdir(parents=True, exist_ok=True)
    one = Worker(folder, kafka, **options)
    one.start()
    try:
        yield one
    finally:
        one.kill()


if __name__ == "__main__":
    print(f"Kafka Connect with Debezium {DEBEZIUM} is in {install()}, Apicurio's converters in {install_converters()}")
