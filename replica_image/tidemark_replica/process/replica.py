"""A replica process put together: scratch, server, worker, pools, Spark.

server threads ──► mailbox ──► worker (this thread) ──► pools: spark (steps), hydration, io (shards), sink, peek
                                                          └──► step workers: processes for small steps
"""

from __future__ import annotations

import os
import stat
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from tidemark_persist import spill_below
from tidemark_replica.command_loop.compute_state import ComputeState
from tidemark_replica.command_loop.describe import Describer, Installed
from tidemark_replica.command_loop.executors import Executors, ExecutorWatch
from tidemark_replica.command_loop.ingestions import Ingestions
from tidemark_replica.command_loop.loop import Worker
from tidemark_replica.command_loop.storage_state import StorageState
from tidemark_replica.dataflow.dataflow_driver import DataflowDriver
from tidemark_replica.dataflow.driver_context import Surroundings
from tidemark_replica.dataflow.installed_dataflows import Dataflows
from tidemark_replica.dataflow.renderer import Renderer
from tidemark_replica.errors import AddressNotUsable, SparkNotStarted
from tidemark_replica.events.client import Responder
from tidemark_replica.events.jobs import Jobs
from tidemark_replica.events.mailbox import Mailbox
from tidemark_replica.options import Options
from tidemark_replica.peek.peek_queue import Peeks
from tidemark_replica.peek.peek_reader import PeekReader
from tidemark_replica.peek.peek_targets import Targets
from tidemark_replica.peek.result_stash import Stash
from tidemark_replica.process.scratch import Scratch
from tidemark_replica.process.scratch_quota import ScratchRoom
from tidemark_replica.process.watchdog import Watchdog
from tidemark_replica.render.execution.merge_queue import MergeQueue
from tidemark_replica.render.step_worker.pool import StepWorkers
from tidemark_replica.server.epoch_gate import Gate
from tidemark_replica.server.server import ComputeService, start_server
from tidemark_replica.shards.shards import ShardHandles, ShardWatch
from tidemark_replica.shards.store_watch import StoreWatch
from tidemark_replica.sinks.client_sinks import ClientSinks
from tidemark_replica.spark.session import SparkHolder, start_spark
from tidemark_replica.telemetry.metrics import Metrics

SPARK_THREADS = 4
HYDRATION_THREADS = 8
"""As many Dataflows as the controller lets in by default, and as many queries, subscribes and copies, which it does not
count. What they take in memory is bounded by this; Spark shares its cores among all."""
IO_THREADS = 8
SINK_THREADS = 8
PEEK_THREADS = 4
STOP_SECONDS = 1.0
ASK_SECONDS = 1.0


class Replica:
    """Everything of one process; `run` on the main thread, `stop` from anywhere, `close` at the end."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._mailbox, self._gate, self._handles = Mailbox(), Gate(), ShardHandles()
        self._describer = Describer(self._mailbox, self._handles, lambda: self._gate.epoch, self._installed)
        self._scratch = Scratch(options.scratch, self._describer.incarnation)
        self._spark_files = (
            self._scratch if options.spark_files is None else Scratch(options.spark_files, self._describer.incarnation)
        )
        self._spill_with_spark()
        self._executors = Executors.of(options)
        self._spark = SparkHolder(self._start_spark)
        self._spark_jobs = Jobs(self._mailbox, "spark", SPARK_THREADS)
        self._hydration_jobs = Jobs(self._mailbox, "hydration", HYDRATION_THREADS)
        self._io_jobs = Jobs(self._mailbox, "io", IO_THREADS)
        self._sink_jobs = Jobs(self._mailbox, "sink", SINK_THREADS)
        self._peek_jobs = Jobs(self._mailbox, "peek", PEEK_THREADS, urges=False)
        self._store_jobs = Jobs(self._mailbox, "store", 1)  # of its own: looks at shards wait where a store hangs
        self._metrics = Metrics()
        room = ScratchRoom(options.scratch, options.scratch_bytes)
        self._stash = Stash(self._scratch.folder / "stash", room.for_answers)
        self._ingestions = Ingestions(self._spark, self._spark_jobs, self._scratch.folder / "sources")
        self._merges = MergeQueue()
        self._renderer = Renderer(
            self._spark,
            self._scratch.folder,
            arrow=options.arrow,
            workers=_step_workers(options),
            merges=self._merges,
            limit_bytes=room.for_arrangements,
        )
        self._room = room
        self._metrics.arrangements(self._renderer.arrangements)
        self._state = self._build_state()
        self._worker = Worker(self._mailbox, self._state, self._spark.died)
        self._server: Any = None
        self._closing = threading.Event()
        self._watchdog = Watchdog(lambda: self._worker.rounds)

    def run(self) -> bool:
        """Serves until stopped; False if it ends because Spark's JVM died. Raises ConfigChanged, AddressNotUsable."""
        if self._executors is not None:  # they take a while, on other machines: they are asked for at once
            threading.Thread(target=self._ask_for_executors, name="ask for executors", daemon=True).start()
        prepare_address(self._options.listen)
        inspect, piece = self._ingestions.inspect, self._stash.piece
        service = ComputeService(self._gate, self._mailbox, self._describer, inspect, piece)
        self._server = start_server(service, self._options.listen, self._options.tls)
        if self._options.metrics_port is not None:
            self._metrics.serve(self._options.metrics_host, self._options.metrics_port)
        self._watchdog.start()
        self._room.watch(self._renderer.tell_room, lambda: self._stash.taken)
        return self._worker.run()

    @property
    def without_executors(self) -> bool:
        """Whether it should have had some, and none ever came."""
        return self._watched.never_came

    def stop(self) -> None:
        self._worker.stop()

    def close(self) -> None:
        """Ends what was started; a second after this nothing of ours is left."""
        self._closing.set()
        if self._server is not None:
            self._server.stop(STOP_SECONDS).wait()
        self._state.shutdown()
        self._spark_jobs.shutdown()
        self._hydration_jobs.shutdown()
        self._io_jobs.shutdown()
        self._sink_jobs.shutdown()
        self._peek_jobs.shutdown()
        self._store_jobs.shutdown()
        self._merges.close()
        self._spark.stop()
        self._room.close()
        self._renderer.close()
        for folder in {self._scratch, self._spark_files}:
            folder.close()
        spill_below(None)
        self._watchdog.stop()

    def _ask_for_executors(self) -> None:
        """Until they were, or nobody needs them: what refuses them now may allow them later."""
        while not self._closing.is_set():
            with suppress(SparkNotStarted):
                self._spark.get()
                return
            self._closing.wait(ASK_SECONDS)

    def _spill_with_spark(self) -> None:
        """Corrections and compactions of tables: for a while they take as much as the tables."""
        spilled = self._spark_files.folder / "spilled"
        spilled.mkdir()
        spill_below(spilled)

    def _start_spark(self) -> Any:
        options, scratch = self._options, self._scratch.folder
        if self._executors is not None:
            self._executors.prepare()
        files = self._spark_files.folder
        sockets = self._spark_files.sockets() if options.master.startswith("local") else None
        return start_spark(options.master, options.driver_memory, scratch, options.spark_conf, files, sockets)

    def _build_state(self) -> ComputeState:
        respond = Responder(self._metrics)
        handles, io = self._handles, self._io_jobs
        watch = ShardWatch(handles, io, respond)
        location, copies = (lambda: self._state.storage_location), self._scratch.folder / "copies"
        around = Surroundings(
            renderer=self._renderer,
            handles=handles,
            watch=watch,
            spark_jobs=self._spark_jobs,
            hydration_jobs=self._hydration_jobs,
            io_jobs=io,
            sink_jobs=self._sink_jobs,
            respond=lambda response: dataflows.tell(response),
            metrics=self._metrics,
            clients=ClientSinks(respond, respond.has_room, self._spark.get, location, copies),
        )
        dataflows = Dataflows(
            lambda dataflow, refused: DataflowDriver(dataflow, around, refused), respond, lambda id: peeks.hold(id)
        )
        read_peek = PeekReader(
            self._spark.get, self._renderer.find, self._renderer.open_batches, self._stash, arrow=self._options.arrow
        )
        targets = Targets(dataflows, watch, self._peek_jobs, read_peek)
        peeks = Peeks(respond, targets, self._stash, self._metrics.peek)
        storage = StorageState(self._ingestions, handles, watch, io, respond)
        store = StoreWatch(self._store_jobs, respond)
        self._watched = ExecutorWatch(self._executors, lambda: self._spark.session, io, respond)
        return ComputeState(
            respond, dataflows, peeks, storage, watch, store, self._watched, self._metrics, self._renderer.sweep
        )

    def _installed(self) -> Installed:
        return self._state.described()


def _step_workers(options: Options) -> StepWorkers | None:
    if options.step_workers == 0:
        return None
    return StepWorkers(options.step_workers, most_bytes=options.step_worker_bytes)


def prepare_address(address: str) -> None:
    """The folder of a unix socket belongs to one user alone: it is the only lock on the door."""
    if not address.startswith("unix:"):
        return
    folder = Path(address.removeprefix("unix:").replace("//", "", 1)).parent
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if stat.S_IMODE(folder.stat().st_mode) & 0o077 or folder.stat().st_uid != os.getuid():
        raise AddressNotUsable(f"{folder} must be a folder of mode 0700 of this user; chmod 700 it")
