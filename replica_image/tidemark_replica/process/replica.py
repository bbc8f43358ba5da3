"""The parts of a replica process, and its threads.

server threads ──► mailbox ──► command loop (main thread) ──► pools: spark (steps), hydration, io (shards), sink,
                                                                │        peek, lookup
                                                                └──► step workers: processes for small steps
"""

from __future__ import annotations

import logging
import os
import stat
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from tidemark_persist import set_spill_folder
from tidemark_replica.command_loop.compute_state import ComputeState
from tidemark_replica.command_loop.describe import Describer, InstalledSummary
from tidemark_replica.command_loop.executors import Executors, ExecutorWatch
from tidemark_replica.command_loop.ingestion_commands import IngestionCommands
from tidemark_replica.command_loop.loop import CommandLoop
from tidemark_replica.command_loop.storage_state import StorageState
from tidemark_replica.dataflow.dataflow_driver import DataflowDriver
from tidemark_replica.dataflow.driver_context import DriverContext
from tidemark_replica.dataflow.installed_dataflows import InstalledDataflows
from tidemark_replica.dataflow.renderer import Renderer
from tidemark_replica.errors import AddressNotUsable, SparkNotStarted
from tidemark_replica.events.client import Responder
from tidemark_replica.events.jobs import Jobs
from tidemark_replica.events.mailbox import Mailbox
from tidemark_replica.options import ReplicaOptions
from tidemark_replica.peek.lookup_batches import LookupReader
from tidemark_replica.peek.peek_queue import PeekQueue
from tidemark_replica.peek.peek_reader import PeekReader
from tidemark_replica.peek.peek_targets import InstalledPeekTargets
from tidemark_replica.peek.result_stash import ResultStash
from tidemark_replica.process.scratch import Scratch
from tidemark_replica.process.scratch_quota import ScratchQuota
from tidemark_replica.process.watchdog import Watchdog
from tidemark_replica.render.execution.background_merges import merge_pool
from tidemark_replica.render.step_worker.pool import StepWorkers
from tidemark_replica.server.epoch_gate import EpochGate
from tidemark_replica.server.server import ComputeService, start_server
from tidemark_replica.shards.shard_listing import list_shards
from tidemark_replica.shards.shards import ShardHandles, ShardWatch
from tidemark_replica.shards.store_watch import StoreWatch
from tidemark_replica.sinks.client_sinks import ClientSinks
from tidemark_replica.spark.priority import at_low_priority
from tidemark_replica.spark.session import SparkHolder, start_spark
from tidemark_replica.storage.source_secrets import SecretFilter, SourceSecrets
from tidemark_replica.storage.tpch.initial import data_folder
from tidemark_replica.storage.written.spool import WriteSpool
from tidemark_replica.telemetry.metrics import Metrics
from tidemark_replica.telemetry.status_repeater import StatusRepeater

SPARK_THREADS = 4
HYDRATION_THREADS = 8
"""The number of hydrations at a time: by default as many as the controller schedules. Queries, subscribes and copies,
which the controller does not count, wait for the same threads. The number bounds memory; Spark shares its cores among
all."""
IO_THREADS = 8
SINK_THREADS = 8
PUBLISH_THREADS, SHORT_PUBLISH_THREADS = 2, 1
PEEK_THREADS, LOOKUP_THREADS = 4, 2
STOP_SECONDS = 1.0
RETRY_SECONDS = 1.0


class Replica:
    """All parts of one process. `run` is called on the main thread, `stop` from any thread, `close` at the end."""

    def __init__(self, options: ReplicaOptions) -> None:
        self._options = options
        self._mailbox, self._gate, self._handles = Mailbox(), EpochGate(), ShardHandles()
        self._describer = Describer(self._mailbox, self._handles, lambda: self._gate.epoch, self._installed)
        self._scratch = Scratch(options.scratch, self._describer.incarnation)
        self._spark_files = (
            self._scratch if options.spark_files is None else Scratch(options.spark_files, self._describer.incarnation)
        )
        self._spill_with_spark()
        self._executors = Executors.of(options)
        self._spark = SparkHolder(self._start_spark)
        self._pools: list[Jobs] = []
        self._spark_jobs = self._pool("spark", SPARK_THREADS)
        self._hydration_jobs = self._pool("hydration", HYDRATION_THREADS)
        self._io_jobs = self._pool("io", IO_THREADS)
        self._sink_jobs = self._pool("sink", SINK_THREADS)
        self._publish_jobs = self._pool("publish", PUBLISH_THREADS)
        self._short_publish_jobs = self._pool("publish-short", SHORT_PUBLISH_THREADS)
        self._peek_jobs = self._pool("peek", PEEK_THREADS, needs_maintenance=False)
        self._lookup_jobs = self._pool("lookup", LOOKUP_THREADS, needs_maintenance=False)
        self._store_jobs = self._pool("store", 1)  # polls of shards on `io` may hang while a store hangs
        self._metrics = Metrics()
        self._quota = quota = ScratchQuota(options.scratch, options.scratch_bytes)
        self._stash = ResultStash(self._scratch.folder / "stash", quota.stash_bytes)
        self._secrets = _source_secrets()
        cache = data_folder(self._scratch.folder)
        self._spool = WriteSpool(self._scratch.folder / "writes", quota.spool_bytes)
        self._ingestions = IngestionCommands(self._spark, self._spark_jobs, cache, self._secrets, self._spool)
        self._merges = merge_pool()
        self._renderer = Renderer(
            self._spark,
            self._scratch.folder,
            arrow=options.arrow,
            workers=_step_workers(options),
            merges=self._merges,
            limit_bytes=quota.arrangement_bytes,
        )
        self._metrics.arrangements(self._renderer.arrangements)
        self._state = self._build_state()
        self._loop = CommandLoop(self._mailbox, self._state, self._spark.died)
        self._server: Any = None
        self._closing = threading.Event()
        self._watchdog = Watchdog(lambda: self._loop.rounds)

    def run(self) -> bool:
        """Serves until `stop`; False if Spark's JVM died. Raises ConfigChanged, AddressNotUsable."""
        if self._executors is not None:  # executors on other machines start slowly, so Spark asks for them now
            threading.Thread(target=self._start_spark_early, name="start spark", daemon=True).start()
        prepare_address(self._options.listen)
        sources = self._ingestions
        reads = sources.inspect, sources.find_published, self._stash.read_piece
        service = ComputeService(
            self._gate, self._mailbox, self._describer, *reads, sources.write, list_shards, sources.release
        )
        self._server = start_server(service, self._options.listen, self._options.tls)
        if self._options.metrics_port is not None:
            self._metrics.serve(self._options.metrics_host, self._options.metrics_port)
        self._watchdog.start()
        self._quota.watch(self._renderer.set_scratch_space, lambda: self._stash.bytes_on_disk + self._spool.used_bytes)
        return self._loop.run()

    @property
    def never_had_executors(self) -> bool:
        """Whether executors are configured and none has ever registered."""
        return self._executor_watch.never_registered

    def stop(self) -> None:
        self._loop.stop()

    def close(self) -> None:
        """Stops all parts. Threads that do not end within STOP_SECONDS are left to the end of the process."""
        self._closing.set()
        if self._server is not None:
            self._server.stop(STOP_SECONDS).wait()
        self._state.shutdown()
        for pool in self._pools:
            pool.shutdown()
        self._merges.shutdown(wait=False, cancel_futures=True)
        self._spark.stop()
        self._quota.close()
        self._renderer.close()
        for folder in {self._scratch, self._spark_files}:
            folder.close()
        set_spill_folder(None)
        self._watchdog.stop()

    def _start_spark_early(self) -> None:
        """Starts Spark, and retries until it starts or the process ends."""
        while not self._closing.is_set():
            with suppress(SparkNotStarted):
                self._spark.get()
                return
            self._closing.wait(RETRY_SECONDS)

    def _spill_with_spark(self) -> None:
        """Puts spilled data of table corrections and compactions beside Spark's files: it may be as large as a
        table."""
        spilled = self._spark_files.folder / "spilled"
        spilled.mkdir()
        set_spill_folder(spilled)

    def _start_spark(self) -> Any:
        options, scratch = self._options, self._scratch.folder
        if self._executors is not None:
            self._executors.prepare()
        files = self._spark_files.folder
        sockets = self._spark_files.sockets() if options.master.startswith("local") else None
        return at_low_priority(
            partial(start_spark, options.master, options.driver_memory, scratch, options.spark_conf, files, sockets)
        )

    def _build_state(self) -> ComputeState:
        respond = Responder(self._metrics)
        handles, io = self._handles, self._io_jobs
        watch = ShardWatch(handles, io, respond)
        location, copies = (lambda: self._state.storage_location), self._scratch.folder / "copies"
        context = DriverContext(
            renderer=self._renderer,
            handles=handles,
            watch=watch,
            spark_jobs=self._spark_jobs,
            hydration_jobs=self._hydration_jobs,
            io_jobs=io,
            sink_jobs=self._sink_jobs,
            publish_jobs=self._publish_jobs,
            short_publish_jobs=self._short_publish_jobs,
            secrets=self._secrets,
            respond=lambda response: dataflows.send(response),
            metrics=self._metrics,
            clients=ClientSinks(respond, respond.has_room, self._spark.get, location, copies),
            step_rows=self._options.step_rows,
        )
        dataflows = InstalledDataflows(
            lambda dataflow, refused: DataflowDriver(dataflow, context, refused), respond, lambda id: peeks.hold(id)
        )
        read_peek = PeekReader(
            self._spark.get,
            self._renderer.find,
            self._renderer.open_batches,
            self._stash,
            open_shard=handles.reader,
            note_failed_read=handles.note_failed_read,
            arrow=self._options.arrow,
        )
        read_together = LookupReader(self._renderer.find, self._renderer.open_batches)
        later = partial(self._mailbox.call, needs_maintenance=False)
        pools = self._lookup_jobs, self._peek_jobs
        targets = InstalledPeekTargets(dataflows, watch, *pools, read_peek, read_together, later)
        peeks = PeekQueue(respond, targets, self._stash, self._metrics.peek)
        storage = StorageState(
            self._ingestions, handles, watch, io, respond, lambda: self._state.storage_location, self._secrets
        )
        statuses = StatusRepeater(respond)
        store = StoreWatch(self._store_jobs, statuses)
        self._executor_watch = ExecutorWatch(self._executors, lambda: self._spark.session, io, statuses)
        watches = storage, watch, store, self._executor_watch, statuses
        return ComputeState(respond, dataflows, peeks, *watches, self._metrics, self._renderer.sweep)

    def _pool(self, name: str, threads: int, *, needs_maintenance: bool = True) -> Jobs:
        """A pool, which `close` shuts down."""
        self._pools.append(Jobs(self._mailbox, name, threads, needs_maintenance=needs_maintenance))
        return self._pools[-1]

    def _installed(self) -> InstalledSummary:
        return self._state.describe()


def _source_secrets() -> SourceSecrets:
    """The Secrets of sources, whose values no log of this process shows."""
    secrets = SourceSecrets.of_environment()
    for handler in logging.getLogger().handlers:
        handler.addFilter(SecretFilter(secrets))
    return secrets


def _step_workers(options: ReplicaOptions) -> StepWorkers | None:
    if options.step_workers == 0:
        return None
    return StepWorkers(options.step_workers, max_bytes=options.step_worker_bytes)


def prepare_address(address: str) -> None:
    """Makes the folder of a unix socket, which must have mode 0700 and belong to this user: file permissions are the
    only access control of the socket. Raises AddressNotUsable."""
    if not address.startswith("unix:"):
        return
    folder = Path(address.removeprefix("unix:").replace("//", "", 1)).parent
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if stat.S_IMODE(folder.stat().st_mode) & 0o077 or folder.stat().st_uid != os.getuid():
        raise AddressNotUsable(f"{folder} must belong to this user and have mode 0700: chmod 700 {folder}")
