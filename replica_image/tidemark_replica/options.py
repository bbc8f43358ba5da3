"""What the process is told on its command line."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from tidemark_protocol.tls.folder import CertificateFolder
from tidemark_replica.spark.executor_pods import K8S
from tidemark_replica.spark.settings import RELIED_ON

MIB, GIB = 1024**2, 1024**3
# what Spark's driver needs to start at all; the other half of the memory is for Arrow, here and in Python workers
HEAP_MIB_MIN = 512
# a step worker's own memory, past which another takes over: an eighth of all, but what imports alone take several times
STEP_WORKER_BYTES_MIN = 256 * MIB
# less has no room for what a replica writes before it has any state
SCRATCH_BYTES_MIN = 64 * MIB


@dataclass(frozen=True)
class Options:
    """`listen`: `unix:///path` or `host:port`; `scratch`, `spark_files`: folders that are this replica's alone."""

    listen: str
    scratch: Path
    scratch_bytes: int | None
    """What its volume holds; None: whatever the disk does."""
    spark_files: Path | None
    """None: they are in `scratch`."""
    name: str
    master: str
    driver_memory: str
    tls: CertificateFolder | None
    """Both sides show certificates, and the operator alone may call."""
    metrics_host: str
    metrics_port: int | None
    spark_conf: tuple[tuple[str, str], ...]
    """What Spark is told besides, of executors on a cluster."""
    executor_labels: str
    """By which the pods of executors are known; empty: there are none."""
    arrow: bool
    step_workers: int
    """Processes beside the driver for small steps, at most; 0: all steps are Spark jobs."""
    step_worker_bytes: int


def setting(text: str) -> tuple[str, str]:
    """NAME=VALUE; raises ValueError for what is none of Spark's, or what replicas rely on."""
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark."):
        raise ValueError(f"{text!r:.100} is not spark.NAME=VALUE")
    if name in RELIED_ON:
        raise ValueError(f"{name} is not to be changed: answers or limits of memory depend on it")
    return name, value


def parse(arguments: list[str]) -> Options:
    parser = argparse.ArgumentParser(prog="tidemark_replica", description="Runs one replica of a compute instance.")
    parser.add_argument("--listen", required=True, help="unix:///path, or host:port with --tls-dir")
    parser.add_argument("--scratch", required=True, type=Path, help="folder for arrangements, this replica's alone")
    limit = "what the volume of --scratch holds: steps that need more fail, and say so (default: no limit)"
    parser.add_argument("--scratch-size", type=int, metavar="BYTES", help=limit)
    parser.add_argument(
        "--spark-files", type=Path, help="folder for Spark's own files, this replica's alone (default: in --scratch)"
    )
    parser.add_argument("--name", default="replica", help="how the replica is called in logs")
    parser.add_argument("--cores", type=int, default=2, help="processors to use (default: %(default)s)")
    parser.add_argument("--memory", type=int, default=2 * GIB, help="bytes to use in all (default: %(default)s)")
    parser.add_argument("--master", help="Spark master (default: local[cores])")
    parser.add_argument("--driver-memory", help="heap of the Spark driver (default: half of --memory)")
    parser.add_argument(
        "--evaluator",
        choices=("arrow", "catalyst"),
        default="arrow",
        help="arrow: expressions that the Arrow evaluator knows stay in Python (default: %(default)s)",
    )
    parser.add_argument(
        "--driver-steps",
        type=int,
        default=2,
        metavar="N",
        help="processes beside the driver that run small steps, at most so many and one per core: one, and more when "
        "steps keep waiting; 0: Spark runs every step (default: %(default)s)",
    )
    parser.add_argument(
        "--spark-conf",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="tell Spark so, such as of executors on a cluster (repeatable); what replicas rely on stays as it is",
    )
    parser.add_argument(
        "--executor-labels",
        default="",
        metavar="NAME=VALUE,...",
        help="executors are pods with these labels: what an earlier process left is deleted before Spark starts",
    )
    parser.add_argument("--metrics-port", type=int, help="serve Prometheus metrics on this port")
    parser.add_argument("--metrics-host", default="127.0.0.1", help="and this address (default: %(default)s)")
    parser.add_argument("--tls-dir", type=Path, help="tls.crt, tls.key and ca.crt; read again when they change")
    given = parser.parse_args(arguments)
    if (wrong := _wrong(given)) is not None:
        parser.error(wrong)
    try:
        conf = tuple(setting(text) for text in given.spark_conf)
    except ValueError as error:
        parser.error(f"--spark-conf: {error}")
    return Options(
        listen=given.listen,
        scratch=given.scratch.absolute(),
        scratch_bytes=given.scratch_size,
        spark_files=given.spark_files.absolute() if given.spark_files else None,
        name=given.name,
        master=given.master or f"local[{given.cores}]",
        driver_memory=given.driver_memory or f"{max(given.memory // 2 // MIB, HEAP_MIB_MIN)}m",
        tls=CertificateFolder(given.tls_dir.absolute()) if given.tls_dir else None,
        metrics_host=given.metrics_host,
        metrics_port=given.metrics_port,
        spark_conf=conf,
        executor_labels=given.executor_labels,
        arrow=given.evaluator == "arrow",
        step_workers=min(given.driver_steps, given.cores),
        step_worker_bytes=max(given.memory // 8, STEP_WORKER_BYTES_MIN),
    )


def _wrong(given: argparse.Namespace) -> str | None:
    """What of it cannot be, beyond what each option says of itself."""
    if not given.listen.startswith("unix:") and not given.tls_dir:
        return "a network address needs --tls-dir; without, listen on unix:///path in a folder of mode 0700"
    if given.scratch_size is not None and given.scratch_size < SCRATCH_BYTES_MIN:
        return f"--scratch-size is a number of bytes, {SCRATCH_BYTES_MIN} at least"
    if given.driver_steps < 0:
        return "--driver-steps is a number of processes, or 0"
    if given.executor_labels and not (given.master or "").startswith(K8S):
        return f"--executor-labels are of pods, which are there with --master {K8S}https://..."
    return None
