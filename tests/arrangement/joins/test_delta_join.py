"""The delta join against nested loops: any number of inputs, keys kept or shared, any steps and chunks."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.arrangement.histories import Driver, contents, seeds, updates
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.kernels.arrange import arrange
from tidemark_replica.kernels.joins.delta_join import DeltaInput, DeltaSpec, delta_join
from tidemark_replica.kernels.joins.half_join import ArrangementLookup

AS_OF, END = 3, 16
# every input has the columns (k, v): here joined by k all around, or in a chain k = v of the one before
TYPES = (pa.int64(), pa.int64())
Change = tuple[Any, int, int]
History = list[list[Change]]


def name(input: int, key: int) -> ArrangementId:
    return ArrangementId(f"i{input}k{key}")


@dataclass(frozen=True)
class Shape:
    """`edges`: input n > 0 is met where its column 0 equals column `key` of input `edge`."""

    edges: tuple[tuple[int, int], ...]
    null_safe: bool = False

    @property
    def inputs(self) -> int:
        return len(self.edges) + 1

    def joins(self, rows: tuple[tuple[int | None, int | None], ...]) -> bool:
        pairs = ((rows[at + 1][0], rows[other][key]) for at, (other, key) in enumerate(self.edges))
        return all(a == b and (a is not None or self.null_safe) for a, b in pairs)

    def paths(self, shared: frozenset[int]) -> tuple[DeltaInput, ...]:
        return tuple(
            DeltaInput(TYPES, () if n in shared else self.kept(n), self._path(n, shared)) for n in range(self.inputs)
        )

    def kept(self, input: int) -> tuple[ArrangementId, ...]:
        return tuple(name(input, key) for key in self.keys(input))

    def keys(self, input: int) -> list[int]:
        """The columns that the input is looked up by."""
        return sorted({key for other, key in self.edges if other == input} | ({0} if input else set()))

    def _path(self, source: int, shared: frozenset[int]) -> tuple[ArrangementLookup, ...]:
        """Neighbours first; the stream is the rows met so far side by side, in the end in the inputs' order."""
        order, lookups = [source], []
        while len(order) < self.inputs:
            to, stream_column, key = next(self._next(order))
            width = 2 * len(order)
            order.append(to)
            output = tuple(range(width + 2))
            if len(order) == self.inputs:
                output = tuple(2 * order.index(n) + c for n in range(self.inputs) for c in (0, 1))
            safe = (0,) if self.null_safe else ()
            lookups.append(ArrangementLookup(to, name(to, key), (stream_column,), output, safe, to in shared))
        return tuple(lookups)

    def _next(self, order: list[int]) -> Iterator[tuple[int, int, int]]:
        """(input, the stream's column, the input's column) of inputs that can be met next."""
        for at, (other, key) in enumerate(self.edges):
            ends = ((at + 1, 0), (other, key))
            for (known, column), (new, by) in (ends, ends[::-1]):
                if known in order and new not in order:
                    yield new, 2 * order.index(known) + column, by


SHAPES = {
    "three by one key": Shape(((0, 0), (0, 0))),
    "chain of four": Shape(((0, 1), (1, 1), (2, 1))),
    "star of five": Shape(((0, 0), (0, 1), (0, 0), (0, 1))),
    "null-safe chain": Shape(((0, 1), (1, 1)), null_safe=True),
}


def random_history(rng: np.random.Generator, inputs: int, n: int) -> History:
    """Changes of each input; a value repeats often, some are NULL, some rows are errors."""
    made: History = [[] for _ in range(inputs)]
    for _ in range(n):
        row: Any = tuple([0, 1, 2, None][int(i)] for i in rng.integers(0, 4, 2))
        row = "boom" if rng.integers(0, 25) == 0 else row
        change = (row, int(rng.integers(0, END)), int(rng.choice([-2, -1, 1, 1, 3])))
        made[int(rng.integers(0, inputs))].append(change)
    return made


def from_as_of(history: History) -> History:
    """The history as a dataflow sees it: what was before has happened at its as_of."""
    return [[(row, max(t, AS_OF), diff) for row, t, diff in changes] for changes in history]


def nested_loops(shape: Shape, history: History) -> Counter[Any]:
    """Every combination, by the definition."""
    result: Counter[Any] = Counter()
    for changes in history:
        for row, time, diff in changes:
            if row == "boom":
                result[(None,) * 2 * shape.inputs, row, time] += diff
    for met in product(*([c for c in changes if c[0] != "boom"] for changes in history)):
        rows = tuple(row for row, _, _ in met)
        if shape.joins(rows):
            diff = reduce(lambda a, b: a * b, (d for _, _, d in met))
            result[sum(rows, ()), None, max(t for _, t, _ in met)] += diff
    return Counter({key: diff for key, diff in result.items() if diff})


def run(driver: Driver, shape: Shape, history: History, cuts: list[int], shared: frozenset[int]) -> Counter[Any]:
    """All steps of a history; shared indexes are a step of their own ahead, and have been there from time 0 on."""
    result: Counter[Any] = Counter()
    ahead = [*cuts[2:], END, END]
    done, moved = 0, from_as_of(history)
    spec = DeltaSpec(shape.paths(shared), TYPES * shape.inputs)
    for (lower, upper), until in zip(pairwise(cuts), ahead, strict=False):
        for n in shared:
            maintain(driver, shape.kept(n), changes_between(history[n], done, until), done, until, since=lower - 1)
        done = until
        context = driver.context(lower, upper, hydration=lower == AS_OF)
        streams = [[updates(TYPES, changes_between(changes, lower, upper))] for changes in moved]
        result.update(contents(delta_join(context, spec, streams)))
        for own in (a for n in range(shape.inputs) if n not in shared for a in shape.kept(n)):
            manifest = driver.manifests[own].append(context.writer.written.get(own, []), lower, upper)
            driver.manifests[own] = driver.merged(manifest.allow_compaction(upper - 1))
    return Counter({key: diff for key, diff in result.items() if diff})


def maintain(
    driver: Driver, indexes: tuple[ArrangementId, ...], rows: list[Change], lower: int, upper: int, since: int
) -> None:
    """Does the work of the dataflow of shared indexes, which are compacted as far as their reader allows."""
    for index in indexes:
        manifest = driver.manifests[index]
        if lower < upper:
            context = driver.context(lower, upper)
            list(arrange(context, index, [updates(TYPES, rows)]))
            manifest = manifest.append(context.writer.written.get(index, []), lower, upper)
        driver.manifests[index] = driver.merged(manifest.allow_compaction(max(since, manifest.since)))


def changes_between(changes: list[Change], lower: int, upper: int) -> list[Change]:
    return [c for c in changes if lower <= c[1] < upper]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("seed", seeds(2, 12))
def test_split_every_combination_is_met_exactly_once(seed: int, shape: Shape, tmp_path: Path) -> None:
    """Whatever is shared or kept, chunks of 1 to 64 rows, steps: several times and inputs in one step."""
    rng = np.random.default_rng(seed)
    history = random_history(rng, shape.inputs, 22 * shape.inputs if shape.inputs < 5 else 60)
    expected = nested_loops(shape, from_as_of(history))
    assert len(expected) > 20
    ways = ((1, [AS_OF, END], ()), (5, [AS_OF, 4, 9, 10, END], (1,)), (64, list(range(AS_OF, END + 1)), (0, 2)))
    for chunk_rows, cuts, shared in (*ways, (16, [AS_OF, 8, END], tuple(range(shape.inputs)))):
        manifests = (
            Manifest.empty(name(n, key), Layout.of_rows(TYPES, [key]), 0 if n in shared else AS_OF)
            for n in range(shape.inputs)
            for key in shape.keys(n)
        )
        driver = Driver(tmp_path / str(chunk_rows), *manifests, chunk_rows=chunk_rows)

        assert run(driver, shape, history, cuts, frozenset(shared)) == expected


def test_a_key_met_a_million_times_needs_no_room_for_its_matches(tmp_path: Path) -> None:
    """Output comes in slices, and on the way nothing is larger."""
    shape = SHAPES["three by one key"]
    arrangements = [Manifest.empty(name(n, 0), Layout.of_rows(TYPES, [0]), AS_OF) for n in range(3)]
    driver = Driver(tmp_path, *arrangements, chunk_rows=500)
    rows = [(1, n) for n in range(100)]
    context = driver.context(AS_OF, END, hydration=True)
    streams = [[updates(TYPES, [(row, AS_OF, 1) for row in rows])]] * 3
    sizes = [u.num_rows for u in delta_join(context, DeltaSpec(shape.paths(frozenset()), TYPES * 3), streams)]

    assert sum(sizes) == 100**3
    assert max(sizes) <= 500


@pytest.mark.parametrize("kind", ["linear", "delta"])
def test_a_key_with_a_million_rows_on_every_side_takes_the_room_of_its_rows(kind: str, tmp_path: Path) -> None:
    """Hydration and a step alike: the process grows by the mapped state and a few slices, not by matches."""
    rows = 1 << 20
    command = [sys.executable, "-m", "tests.arrangement.joins.skewed_join", kind, str(rows), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3])

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 450 << 20
