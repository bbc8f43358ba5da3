"""Replicas as pods of a real cluster: `python -m bench.cluster [--json]`, as root.

    start_ratio         from the creation of a ComputeReplica until it is Online and its two executors have registered,
                        over the same with JVMs that have their own defaults, and no archive of classes
    hydrated_ratio      likewise until its view is hydrated: executors have done a job
    step_ratio          a step of some 100 rows that is a Spark job, with two executor pods, over the same in the
                        driver's pod without executors
    small_step_ratio    likewise a step that a replica takes beside its driver, executors or not
    replica_image_mb, operator_image_mb    compressed by gzip, as `make images` prints them

The node, the images, the chart and the object store are those of `make test-cluster`; with TIDEMARK_TEST_NODE a node
that runs is taken. Two releases, one with an image of other JVMs (bench/cluster_image), look after a namespace each and
take turns. Views are compared with DuckDB's answers before anything is measured.
"""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness.clock import p50
from bench.harness.context import bench_parser, context, load, progress, report
from bench.harness.ratios import Figures, rounded
from bench.harness.replica import Steps
from bench.steps.together import QUERY
from tests.cluster import nodes, pods
from tests.cluster.forward import forwarded
from tests.cluster.helm import Helm
from tests.cluster.object_store import ObjectStore, install
from tests.cluster.waiting import wait_for
from tests.cluster.whole.system import CREDENTIALS, REPLICA, SMALL, System, shared_folder
from tidemark_devcluster.images.build import BuildOptions, Image, image_name, version, workshop
from tidemark_devcluster.node import host_requirements
from tidemark_devcluster.node.binaries import ensure_node_binaries
from tidemark_devcluster.node.cluster import OneNode
from tidemark_devcluster.programs.build import ensure_helm, ensure_versitygw
from tidemark_devcluster.programs.progress import ProgressOutput
from tidemark_operator.orchestrator.kubernetes.driver import METRICS_PORT

PLAIN = f"{version()}-plain"
DOCKERFILE = Path(__file__).with_name("cluster_image") / "Dockerfile"
ONLINE_SECONDS = 900.0
LOOK_SECONDS = 0.2
PARTS = ("starts", "steps")
# a transaction changes 16 lines on average: 96 rows a tick
SOURCE: dict[str, Any] = {
    "instance": "default",
    "tick": "1s",
    "loadGenerator": {"tpch": {"scaleFactor": 0.01, "transactionsPerSecond": 6}},
}
JOB = QUERY.sql.format(lineitem="tpch.lineitem").strip()
SMALL_STEP = """SELECT l_returnflag, l_linestatus, count(*) AS lines, sum(l_quantity) AS quantity
FROM tpch.lineitem GROUP BY l_returnflag, l_linestatus"""
ALONE = {"instance": "default", "resources": SMALL}


@dataclass(frozen=True)
class Place:
    """Where releases are installed."""

    node: OneNode
    helm: Helm
    store: ObjectStore


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = bench_parser(__doc__, "one start of each, few steps")
    parser.add_argument("--rounds", type=int, default=3, help="of starts, and of replicas whose steps are timed")
    parser.add_argument("--steps", type=int, default=60, help="of each view and replica (%(default)s)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what is measured (default: both)")
    given = parser.parse_args(arguments)
    if given.quick:
        vars(given).update(rounds=1, steps=5)
    host_requirements.require_all()
    circumstances = context() | {"load_before": load(), **vars(given)}
    progress = ProgressOutput(sys.stderr)
    images = nodes.built(progress)
    with nodes.running_node(ensure_node_binaries(os.environ, progress)) as node, place(node, images, progress) as at:
        figures = _sizes(images) | _measured(at, given.parts, given.rounds, given.steps)
    report("cluster", rounded(figures), circumstances | {"load_after": load()}, given.json)


@contextmanager
def place(node: OneNode, images: Mapping[str, Image], progress: ProgressOutput) -> Iterator[Place]:
    """The node with its images, those with other JVMs among them, and with an object store."""
    nodes.load(node, images)
    node.load(_plain(images["replica"], progress))
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder:
        packed, home = Path(folder) / "image.tar", Path(folder) / "helm"
        home.mkdir()
        store = install(node, ensure_versitygw(os.environ, progress), images["operator"].name, packed)
        yield Place(node, Helm(ensure_helm(os.environ, progress), node, home), store)


def _plain(replica: Image, progress: ProgressOutput) -> Path:
    """The archive of the image with other JVMs."""
    name = f"{replica.name.rpartition(':')[0]}:{PLAIN}"
    with workshop(BuildOptions(python=image_name("operator")), os.environ, progress) as shop:
        return shop.build(name, "replica-plain", "plain", DOCKERFILE, [f"--build-arg=REPLICA={replica.name}"])


@contextmanager
def release(at: Place, name: str, *settings: str) -> Iterator[System]:
    """The chart for one namespace, with an instance, a source, and a view; no replica yet."""
    run = secrets.token_hex(3)
    made = System(at.node, at.helm, at.store, f"bench-{name}-{run}", f"bench-{name}-{run}-team")
    for namespace in (made.home, made.team):
        at.node.kubectl("apply", "--filename=-", stdin=pods.restricted_namespace(namespace))
    pods.apply(at.node, made.team, *shared_folder(at.node, made.team), at.store.secret(CREDENTIALS))
    at.helm.install(made.home, f"watchNamespaces={{{made.team}}}", "operator.replicas=1", *settings)
    storage = {"location": made.location, "secretName": CREDENTIALS}
    made.apply("ComputeInstance", "default", {"storage": storage, "readPolicy": {"lag": "10m"}})
    made.apply("DataSource", "tpch", SOURCE)
    made.apply("Dataflow", "first", {"instance": "default", "sql": SMALL_STEP, "materializedView": {}})
    try:
        yield made
    finally:
        made.kubectl("delete", "dataflows,datasources,computereplicas,computeinstances", "--all")
        at.helm.uninstall(made.home)
        at.node.kubectl("delete", "namespace", made.team, made.home, "--wait=false")
        at.node.kubectl("delete", "persistentvolume", f"scratch-{made.team}", "--wait=false")


def _measured(at: Place, parts: Sequence[str], rounds: int, steps: int) -> Figures:
    found = Figures()
    with ExitStack() as stack:
        ours = stack.enter_context(release(at, "ours"))
        if "starts" in parts:
            others = ("crds.install=false", "userRoles.create=false", f"replica.image.tag={PLAIN}")
            plain = stack.enter_context(release(at, "plain", *others))
            found |= _starts({"ours": ours, "plain": plain}, rounds)
        if "steps" in parts:
            found |= _steps(ours, rounds, steps)
    return found


def _sizes(images: Mapping[str, Image]) -> Figures:
    return {f"{target}_image_mb": image.size.compressed / 1e6 for target, image in images.items()}


# --- starts ---


def _starts(systems: Mapping[str, System], rounds: int) -> Figures:
    """In turns. The first of each, which reads everything from the disk and checks the view, does not count."""
    took: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds + 1):
        for name, system in systems.items():
            seconds = _timed_start(system)
            if number == 0:
                system.right_at_a_new_frontier("first", SMALL_STEP, "lineitem")
            else:
                for until, value in seconds.items():
                    took.setdefault((until, name), []).append(value)
                progress(f"{name}: " + ", ".join(f"{until} {value:.1f} s" for until, value in seconds.items()))
            _end(system)
    found = Figures()
    for until in ("start", "hydrated"):
        ours, plain = p50(took[until, "ours"]), p50(took[until, "plain"])
        found |= {f"{until}_ratio": ours / plain, f"{until}_s": ours, f"{until}_plain_s": plain}
    return found


def _timed_start(system: System) -> dict[str, float]:
    """Seconds until it is Online with all its executors, and until its view is hydrated."""
    began = time.perf_counter()
    _start(system, REPLICA)
    _wait(system, "ExecutorsReady")
    start = time.perf_counter() - began
    _wait(system, "Ready")
    return {"start": start, "hydrated": time.perf_counter() - began}


def _start(system: System, spec: Mapping[str, Any]) -> None:
    """Start the replica, and wait until it is Online; its executors are on their way then."""
    system.apply("ComputeReplica", "r1", dict(spec))
    _wait(system, "Online")


def _wait(system: System, condition: str) -> None:
    asked = (f"--for=condition={condition}", f"--timeout={ONLINE_SECONDS:.0f}s")
    system.node.kubectl("-n", system.team, "wait", "computereplica/r1", *asked, seconds=ONLINE_SECONDS + 30)


def _end(system: System) -> None:
    system.kubectl("delete", "computereplica", "r1")
    wait_for("its pods to go", lambda: not system.get("pods")["items"], system.explain)


# --- steps ---


def _steps(system: System, rounds: int, steps: int) -> Figures:
    """Two executors and none take turns; each view is there alone while it is timed."""
    system.kubectl("delete", "dataflow", "first")
    took: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds):
        for way, spec in {"alone": ALONE, "executors": REPLICA}.items():
            _start(system, spec)
            for kind, sql in {"step": JOB, "small_step": SMALL_STEP}.items():
                name = f"{kind}-{way}-{number}".replace("_", "-")
                took.setdefault((kind, way), []).extend(_timed(system, name, sql, steps, spec))
                progress(f"{name}: {p50(took[kind, way]):.1f} ms a step")
            _end(system)
    found = Figures()
    for kind in ("step", "small_step"):
        executors, alone = p50(took[kind, "executors"]), p50(took[kind, "alone"])
        found |= {f"{kind}_ratio": executors / alone, f"{kind}_ms": executors, f"{kind}_alone_ms": alone}
    return found


def _timed(system: System, name: str, sql: str, steps: int, spec: Mapping[str, Any]) -> list[float]:
    """Milliseconds of so many steps of one view, once it is right and all executors are there."""
    system.apply("Dataflow", name, {"instance": "default", "sql": sql, "materializedView": {}})
    system.wait_condition("dataflow", name, "Hydrated")
    system.right_at_a_new_frontier(name, sql, "lineitem")
    if "executors" in spec:
        _wait(system, "ExecutorsReady")
    took: list[float] = []
    with forwarded(system.node, system.team, f"pod/{system.driver()}", METRICS_PORT) as port:
        before = Steps.asked(port)
        while len(took) < steps:
            time.sleep(LOOK_SECONDS)
            now = Steps.asked(port)
            if (more := round(now.count - before.count)) > 0:
                took += [(now.seconds - before.seconds) / more * 1e3] * more
                before = now
    system.kubectl("delete", "dataflow", name)
    return took


if __name__ == "__main__":
    main()
