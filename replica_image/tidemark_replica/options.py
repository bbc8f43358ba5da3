"""The command line of the replica process."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from tidemark_protocol.tls.folder import CertificateFolder
from tidemark_replica.spark.executor_pods import K8S
from tidemark_replica.spark.settings import RESERVED_SETTINGS

MIB, GIB = 1024**2, 1024**3
HEAP_MIB_MIN = 512
"""The smallest heap with which Spark's driver starts. The other half of the memory is for Arrow."""
STEP_WORKER_BYTES_MIN = 256 * MIB
"""A step worker that uses more than its limit is replaced. Its imports alone take a part of this."""
STEP_ROWS = 2_000_000
"""A dataflow that is behind catches up in steps of so many updates (docs/performance.md)."""
SCRATCH_BYTES_MIN = 64 * MIB
"""A replica writes about this much before it has any state."""


@dataclass(frozen=True)
class ReplicaOptions:
    """The parsed command line. `listen` is `unix:///path` or `host:port`. No other process uses `scratch` and
    `spark_files`."""

    listen: str
    scratch: Path
    scratch_bytes: int | None
    """Capacity of the volume of `scratch`. None: no limit but the disk's."""
    spark_files: Path | None
    """The folder for Spark's files. None: inside `scratch`."""
    master: str
    driver_memory: str
    tls: CertificateFolder | None
    """The certificates: both sides show theirs, and only the operator may call. None: no TLS."""
    metrics_host: str
    metrics_port: int | None
    spark_conf: tuple[tuple[str, str], ...]
    """Further Spark settings, for example of executors on a cluster."""
    executor_labels: str
    """The labels of executor pods. Empty: there are no executor pods."""
    arrow: bool
    step_workers: int
    """The largest number of step workers. 0: Spark runs every step."""
    step_worker_bytes: int
    step_rows: int | None
    """The largest number of updates of a step, unless one time has more. None: any number."""


def parse_setting(text: str) -> tuple[str, str]:
    """Parses `spark.NAME=VALUE`. Raises ValueError for other names and for settings that replicas set themselves."""
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark."):
        raise ValueError(f"{text!r:.100} is not spark.NAME=VALUE")
    if name in RESERVED_SETTINGS:
        raise ValueError(f"{name} cannot be set: the replica sets it, and results or memory limits depend on it")
    return name, value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tidemark_replica", description="Runs one replica of a compute instance.")
    parser.add_argument("--listen", required=True, help="unix:///path, or host:port with --tls-dir")
    parser.add_argument(
        "--scratch", required=True, type=Path, help="folder for arrangements; no other process may use it"
    )
    limit = "capacity of the volume of --scratch: steps that need more fail with an error (default: no limit)"
    parser.add_argument("--scratch-size", type=int, metavar="BYTES", help=limit)
    parser.add_argument(
        "--spark-files", type=Path, help="folder for Spark's files; no other process may use it (default: in --scratch)"
    )
    parser.add_argument("--name", default="replica", help="name of the replica, for those who list processes")
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
        help="largest number of processes that run small steps beside the driver, at most one per core; one is started "
        "first, more when steps keep waiting; 0: Spark runs every step (default: %(default)s)",
    )
    parser.add_argument(
        "--step-rows",
        type=int,
        default=STEP_ROWS,
        metavar="N",
        help="largest number of updates that a step reads, unless one time has more: a dataflow that is behind catches "
        "up in such steps; 0: all that has come in one step (default: %(default)s)",
    )
    parser.add_argument(
        "--spark-conf",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a Spark setting, for example of executors on a cluster (repeatable); not one that replicas set",
    )
    parser.add_argument(
        "--executor-labels",
        default="",
        metavar="NAME=VALUE,...",
        help="labels of executor pods; pods of an earlier process are deleted before Spark starts",
    )
    parser.add_argument("--metrics-port", type=int, help="serve Prometheus metrics on this port")
    parser.add_argument("--metrics-host", default="127.0.0.1", help="and this address (default: %(default)s)")
    parser.add_argument("--tls-dir", type=Path, help="tls.crt, tls.key and ca.crt; read again when they change")
    return parser


def parse(arguments: list[str]) -> ReplicaOptions:
    """Parses the arguments; prints usage and exits with 2 where they are wrong."""
    parser = _parser()
    args = parser.parse_args(arguments)
    if (wrong := _usage_error(args)) is not None:
        parser.error(wrong)
    try:
        conf = tuple(parse_setting(text) for text in args.spark_conf)
    except ValueError as error:
        parser.error(f"--spark-conf: {error}")
    return ReplicaOptions(
        listen=args.listen,
        scratch=args.scratch.absolute(),
        scratch_bytes=args.scratch_size,
        spark_files=args.spark_files.absolute() if args.spark_files else None,
        master=args.master or f"local[{args.cores}]",
        driver_memory=args.driver_memory or f"{max(args.memory // 2 // MIB, HEAP_MIB_MIN)}m",
        tls=CertificateFolder(args.tls_dir.absolute()) if args.tls_dir else None,
        metrics_host=args.metrics_host,
        metrics_port=args.metrics_port,
        spark_conf=conf,
        executor_labels=args.executor_labels,
        arrow=args.evaluator == "arrow",
        step_workers=min(args.driver_steps, args.cores),
        step_worker_bytes=max(args.memory // 8, STEP_WORKER_BYTES_MIN),
        step_rows=args.step_rows or None,
    )


def _usage_error(args: argparse.Namespace) -> str | None:
    """The first rule about combinations of options that the arguments break; None where they break none."""
    if not args.listen.startswith("unix:") and not args.tls_dir:
        return "a network address needs --tls-dir; without it, listen on unix:///path in a folder of mode 0700"
    if args.scratch_size is not None and args.scratch_size < SCRATCH_BYTES_MIN:
        return f"--scratch-size is a number of bytes, {SCRATCH_BYTES_MIN} at least"
    if args.driver_steps < 0:
        return "--driver-steps is a number of processes, or 0"
    if args.step_rows < 0:
        return "--step-rows is a number of updates, or 0"
    if args.executor_labels and not (args.master or "").startswith(K8S):
        return f"--executor-labels needs --master {K8S}https://..., which runs executors as pods"
    return None
