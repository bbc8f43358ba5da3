"""The Spark session of a replica. It starts with the first dataflow, or with the process where there are executors.

The JVM reads this process's pipe as its standard input and exits when the process is gone, however it died; the Python
workers exit with the JVM. `died` tells when the JVM is gone, and the process must end.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tidemark_replica.allocator_env import TASK_KEPT_BYTES, allocator_env
from tidemark_replica.errors import SparkNotStarted
from tidemark_replica.retry import Backoff
from tidemark_replica.spark.settings import SETTINGS

LOG = logging.getLogger(__name__)

# code is compiled once and not twice, which is faster for short steps and at start
STOP_SECONDS = 10.0
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SHORT_NAMES = ("PythonUtils", "PythonSQLUtils", "SimplePythonFunction", "functions")
"""Classes of the JVM that PySpark asks for by these names, several times for each stage that is prepared."""


def start_spark(
    master: str,
    driver_memory: str,
    scratch: Path,
    conf: Iterable[tuple[str, str]] = (),
    files: Path | None = None,
    sockets: Path | None = None,
) -> Any:
    """A new session with its temporary files under `files`, or `scratch`; takes seconds. `conf`: settings of executors
    elsewhere; `sockets`: a folder with a short path, for executors on this machine."""
    from pyspark.sql import SparkSession  # a slow import, which serving a client does not need

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        # Spark reads it before any setting: all of its servers listen on loopback only
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(master).appName("tidemark-replica")
    for name, value in (*conf, *SETTINGS.items()):
        builder = builder.config(name, value)
    for name, value in allocator_env(TASK_KEPT_BYTES).items():
        builder = builder.config(f"spark.executorEnv.{name}", value)
    builder = builder.config("spark.driver.memory", driver_memory)
    temporary = (files or scratch) / "spark"
    temporary.mkdir(parents=True, exist_ok=True)
    builder = builder.config("spark.local.dir", str(temporary))
    builder = builder.config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
    builder = builder.config("spark.driver.extraJavaOptions", f'{JVM} -Djava.io.tmpdir="{temporary}"')
    builder = builder.config("spark.python.unix.domain.socket.dir", str(sockets or tempfile.gettempdir()))
    if master.startswith("local"):
        builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    keep_classes(session.sparkContext._jvm)
    return session


def keep_classes(jvm: Any) -> None:
    """Look the classes of SHORT_NAMES up once. Each lookup makes the JVM search all jars for a class without a package,
    which takes 1 to 2 ms; `jvm` asks only for names that are not attributes of it."""
    for name in SHORT_NAMES:
        setattr(jvm, name, getattr(jvm, name))


class SparkHolder:
    """The one session of the process, started on the thread that first needs it.

    A failed start is retried after growing pauses. Callers during a pause get the last error at once, so that a
    thousand dataflows that retry cause one start and one line in the log.
    """

    def __init__(self, start: Callable[[], Any], clock: Callable[[], float] = time.monotonic) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._session: Any = None
        self._jvm_died_at_start = False
        self._backoff, self._failure = Backoff(clock), ""

    @property
    def session(self) -> Any:
        """The session; None before it has started. Does not wait."""
        return self._session

    def get(self) -> Any:
        """Starts the session if needed. Raises SparkNotStarted."""
        with self._lock:
            if self._session is None:
                self._session = self._start_session()
            return self._session

    def _start_session(self) -> Any:
        if not self._backoff.has_elapsed:
            raise SparkNotStarted(self._failure)
        LOG.log(logging.DEBUG if self._failure else logging.INFO, "starting Spark")
        try:
            return self._start()
        except Exception as error:
            self._jvm_died_at_start = _jvm_is_gone()
            self._backoff.failed()
            before, self._failure = self._failure, f"Spark does not start: {error}"
            LOG.log(logging.DEBUG if self._failure == before else logging.WARNING, "%s", self._failure)
            raise SparkNotStarted(self._failure) from error

    def died(self) -> bool:
        """Whether the JVM is gone, also where it died during the start of the session. A process has one JVM in its
        life."""
        return self._jvm_died_at_start or (self._session is not None and _jvm_is_gone())

    def stop(self) -> None:
        """Ends the session, if it was started, and its JVM."""
        session = self._session
        if session is None:
            return
        gateway = session.sparkContext._gateway
        if not self.died():
            session.stop()
        gateway.shutdown()
        if gateway.proc is not None:
            gateway.proc.stdin.close()
            try:
                gateway.proc.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                gateway.proc.kill()  # its files are removed with scratch


def _jvm_is_gone() -> bool:
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None
