"""`python -m tests.soak.growth --home .tidemark --minutes 15`: growth of a running system.

    every --every seconds:  processes, shards, arrangements, folders, API server ──► one sample
    at the end:             a table, one line per measure: first, ..., last, and how fast it grows

It only looks, at a system that `make demo` has started. For counters (writes, seconds of CPU) the last column is the
rate; `--all` shows every shard and every arrangement beside the totals.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.soak import folders, processes, requests
from tests.soak.table import render
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_devcluster.demo.home import DemoHome

Sample = dict[str, float]


@dataclass(frozen=True)
class Places:
    """Where a system is: the folder that its processes' command lines name, its parts, its API server."""

    root: Path
    operator_state: Path
    shards: Path
    plane: ControlPlane

    @staticmethod
    def of_demo(folder: Path) -> Places:
        home = DemoHome(folder.resolve())
        return Places(home.root, home.operator_state, home.data / "shards", home.plane())


def sample(places: Places) -> Sample:
    """Everything there is to measure, now."""
    measured: Sample = {"minute": time.time() / 60}
    measured |= processes.measures(processes.of_system(places.root))
    measured |= requests.measures(places.plane.kubectl("get", "--raw", "/metrics"))
    measured |= folders.scratch_measures(places.operator_state)
    measured |= {"logs KiB": folders.logs_kib(places.root), "etcd MiB": folders.etcd_mib(places.plane.layout.root)}
    measured |= dict(_shards(places.shards))
    measured |= dict(_arrangements(places.operator_state))
    return measured


def watch(places: Places, minutes: float, every: float) -> Iterator[Sample]:
    """Samples until the time is over; at least two."""
    end = time.monotonic() + 60 * minutes
    while True:
        began = time.monotonic()
        yield sample(places)
        if began >= end:
            return
        time.sleep(max(0.0, min(began + every, end) - time.monotonic()))


def _shards(location: Path) -> Iterator[tuple[str, float]]:
    totals: dict[str, list[float]] = {}
    for shard in folders.shards(location):
        for what, value in folders.shard_measures(shard).items():
            totals.setdefault(what, []).append(value)
            yield f"shard {shard.relative_to(location)}: {what}", value
    for what, values in totals.items():
        yield (f"shards, worst: {what}", max(values)) if "ago" in what else (f"shards: {what}", sum(values))


def _arrangements(state: Path) -> Iterator[tuple[str, float]]:
    sizes = folders.arrangements(state)
    for name, size in sizes.items():
        yield f"arrangement {name}: files", float(size.files)
        yield f"arrangement {name}: MiB", size.bytes / 2**20
    yield "arrangements: files", float(sum(size.files for size in sizes.values()))
    yield "arrangements: MiB", sum(size.bytes for size in sizes.values()) / 2**20


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.growth", description=__doc__.splitlines()[0])
    parser.add_argument("--home", type=Path, default=Path(".tidemark"), help="the demo's folder (%(default)s)")
    parser.add_argument("--minutes", type=float, default=15.0, help="how long (%(default)s)")
    parser.add_argument("--every", type=float, default=60.0, help="seconds between samples (%(default)s)")
    parser.add_argument("--all", action="store_true", help="every shard and arrangement, not only the totals")
    parser.add_argument("--json", type=Path, help="append the samples to this file, one a line")
    options = parser.parse_args(arguments)
    samples: list[Mapping[str, float]] = []
    for measured in watch(Places.of_demo(options.home), options.minutes, options.every):
        samples.append(measured)
        print(f"sample {len(samples)}", file=sys.stderr, flush=True)
        if options.json:
            with options.json.open("a") as file:
                file.write(json.dumps(measured) + "\n")
    print(render(samples, everything=options.all))
    return 0


if __name__ == "__main__":
    sys.exit(main())
