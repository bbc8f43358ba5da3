"""A driver in a pod with executors in pods of their own: a job with an exchange, again and again, until it is ended.

Each line of output is one JSON object: a job's result, and who took part in it.
"""

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

PORT, BLOCKS_PORT = 7078, 7079
EXECUTORS = 2


def settings() -> dict[str, str]:
    """What a driver in client mode needs; nothing of it asks for more than pods of its own namespace."""
    environ = os.environ
    kubernetes = {
        "namespace": environ["POD_NAMESPACE"],
        "driver.pod.name": environ["POD_NAME"],  # owns the executors, which go with it
        "container.image": environ["EXECUTOR_IMAGE"],
        "container.image.pullPolicy": "Never",
        "executor.podTemplateFile": "/etc/job/executor.json",
        "executor.disableConfigMap": "true",
        "driver.ownPersistentVolumeClaim": "false",
        "driver.reusePersistentVolumeClaim": "false",
        "driver.service.deleteOnTermination": "false",
        "executor.request.cores": "0.1",
        "executor.apiPollingInterval": "5s",
        "executor.eventProcessingInterval": "200ms",
        "allocation.batch.delay": "200ms",
    }
    return {f"spark.kubernetes.{name}": value for name, value in kubernetes.items()} | {
        "spark.submit.deployMode": "client",
        "spark.driver.bindAddress": environ["POD_IP"],
        "spark.driver.host": environ["POD_IP"],
        "spark.driver.port": str(PORT),
        "spark.driver.blockManager.port": str(BLOCKS_PORT),
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.executor.instances": str(EXECUTORS),
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.executor.memoryOverhead": "384m",
        "spark.executor.maxNumFailures": "1000",
        "spark.shuffle.io.connectionCreationTimeout": "3s",
        "spark.shuffle.io.retryWait": "1s",
        "spark.shuffle.io.maxRetries": "2",
        "spark.authenticate": "true",
        "spark.authenticate.secret.file": "/etc/secret/secret",
        "spark.network.crypto.enabled": "true",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.enabled": "false",
    }


def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """How many rows came here, and where that is."""
    count = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"host": [socket.gethostname()], "uid": [os.getuid()], "rows": [count]})


def main() -> None:
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    builder = SparkSession.builder.master("k8s://https://kubernetes.default.svc").appName("job")
    for name, value in settings().items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    while not ended.is_set():
        rows = spark.range(10_000).selectExpr("id", "id % 16 AS key").repartition(4, "key")
        parts = rows.mapInArrow(where, "host string, uid long, rows long").collect()
        hosts = sorted({part.host for part in parts})
        total, uids = sum(part.rows for part in parts), sorted({part.uid for part in parts})
        print(json.dumps({"rows": total, "hosts": hosts, "uids": uids}), flush=True)
        ended.wait(0.5)
    spark.stop()


if __name__ == "__main__":
    main()
