"""The kernel of self-joins against the join that keeps both sides, over random histories cut in every way."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.arrangement.histories import Driver, colliding, contents, seeds, updates
from tidemark_replica.arrangement.errors import DiffOverflow
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.spines.trace import Trace
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.kernels.joins.join import JoinInput, JoinSide, JoinSpec, join
from tidemark_replica.kernels.joins.self_join import SelfJoinSpec, self_join

ONE, LEFT, RIGHT = ArrangementId("one"), ArrangementId("left"), ArrangementId("right")
TYPES = [pa.string(), pa.int64(), pa.int64()]
LAYOUT = Layout.of_rows(TYPES, [0, 1])
NAMES = ["x", "y", "a long name of a customer"]


def history(rng: np.random.Generator, upper: int, n: int) -> list[tuple[object, int, int]]:
    """Updates in order of time: keys collide in all 64 bits of their hash, some are NULL, some rows are errs."""
    numbers = colliding(pa.array(NAMES))
    result: list[tuple[object, int, int]] = []
    for time in np.sort(rng.integers(0, upper, n)).tolist():
        at = int(rng.integers(0, len(NAMES) + 1))
        name = [*NAMES, None][at]
        row = (name, [*numbers, None][int(rng.choice([at, len(NAMES), 0]))], int(rng.integers(0, 3)))
        failed = rng.integers(0, 20) == 0
        result.append(("boom" if failed else row, time, int(rng.choice([-2, -1, 1, 1, 3]))))
    return result


def pieces(rng: np.random.Generator, rows: list[tuple[object, int, int]]) -> list[object]:
    cuts = sorted(rng.integers(0, len(rows) + 1, rng.integers(0, 4)).tolist())
    return [updates(TYPES, rows[begin:end]) for begin, end in pairwise([0, *cuts, len(rows)])]


def net(counted: Counter) -> Counter:
    return Counter({update: diff for update, diff in counted.items() if diff})


def append_to_sides(driver: Driver, context: StepContext, lower: int, upper: int, *names: ArrangementId) -> None:
    for name in names:
        manifest = driver.manifests[name].append(context.writer.written.get(name, []), lower, upper)
        driver.manifests[name] = driver.merged(manifest.allow_compaction(upper - 1))


@pytest.mark.broad
@pytest.mark.parametrize("null_safe", [(), (1,), (0, 1)], ids=str)
@pytest.mark.parametrize("seed", seeds(3, 12))
def test_agree_a_self_join_keeps_once_what_a_join_keeps_twice(
    seed: int, null_safe: tuple[int, ...], tmp_path: Path
) -> None:
    """The same updates at every step, errs included, and the contents of one side."""
    rng = np.random.default_rng(seed)
    rows = [(row, max(time, 3), diff) for row, time, diff in history(rng, 20, 120)]
    both = JoinSpec(JoinInput(LEFT, (2, 0)), JoinInput(RIGHT, (2,)), null_safe)
    for chunk_rows, cuts in ((1, [3, 20]), (7, [3, 4, 9, 10, 20]), (64, list(range(3, 21)))):
        empty = [Manifest.empty(a, LAYOUT, 3) for a in (ONE, LEFT, RIGHT)]
        driver = Driver(tmp_path / str(chunk_rows), *empty, chunk_rows=chunk_rows)
        total = 0
        for lower, upper in pairwise(cuts):
            chosen = pieces(rng, [u for u in rows if lower <= u[1] < upper])
            context = driver.context(lower, upper, hydration=lower == cuts[0])
            sides = [(side, piece) for piece in chosen for side in JoinSide]
            expected = contents(join(context, both, sides))
            result = contents(self_join(context, SelfJoinSpec(ONE, (2, 0), (2,), null_safe), chosen))
            assert net(result) == net(expected)
            total += len(net(expected))
            append_to_sides(driver, context, lower, upper, ONE, LEFT, RIGHT)
            one, left = (Trace(driver.manifests[name], context.cache) for name in (ONE, LEFT))
            assert contents(one.rows_at(upper - 1)) == contents(left.rows_at(upper - 1))
        assert total > 20


def test_a_product_beyond_64_bits_is_an_error(tmp_path: Path) -> None:
    driver = Driver(tmp_path, Manifest.empty(ONE, LAYOUT, 0))
    rows = updates(TYPES, [(("x", 1, 1), 1, 2**40)])
    with pytest.raises(DiffOverflow):
        list(self_join(driver.context(0, 2), SelfJoinSpec(ONE, (2,), (2,)), [rows]))
