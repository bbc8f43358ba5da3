"""The join kernel against nested loops, over random histories cut into steps and chunks in every way."""

from collections import Counter
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.arrangement.histories import Driver, colliding, contents, seeds, updates
from tests.stored_files import stored_files
from tidemark_replica.arrangement.errors import DiffOverflow, MalformedUpdates, OutOfFrontier
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.updates import Updates
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.kernels.arrange import arrange
from tidemark_replica.kernels.joins.join import JoinInput, JoinSide, JoinSpec, join, multiply_diffs

LEFT, RIGHT = ArrangementId("left"), ArrangementId("right")
# (k1 string, k2 bigint, value) joined with (value, k2 bigint, k1 string)
LEFT_TYPES = [pa.string(), pa.int64(), pa.decimal128(15, 2)]
RIGHT_TYPES = [pa.float64(), pa.int64(), pa.string()]
SPEC = JoinSpec(JoinInput(LEFT, (0, 2)), JoinInput(RIGHT, (0, 1)))
NAMES = ["x", "y", "a long name of a customer", None]


def manifests(lower: int = 0) -> list[Manifest]:
    left, right = Layout.of_rows(LEFT_TYPES, [0, 1]), Layout.of_rows(RIGHT_TYPES, [2, 1])
    return [Manifest.empty(a, layout, lower) for a, layout in ((LEFT, left), (RIGHT, right))]


def history(rng: np.random.Generator, upper: int, n: int) -> list[tuple[JoinSide, tuple]]:
    """Updates in order of time; keys collide in all 64 bits of their hash; some rows are errs."""
    numbers = colliding(pa.array(NAMES[:-1]))
    result = []
    for time in np.sort(rng.integers(0, upper, n)).tolist():
        side = list(JoinSide)[rng.integers(0, 2)]
        i = int(rng.integers(0, len(NAMES)))
        name, number = NAMES[i], [*numbers, None][int(rng.choice([i, 3, 0]))]
        value = [0.0, -0.0, 2.5][rng.integers(0, 3)]
        row = (name, number, round(abs(value), 2)) if side is JoinSide.LEFT else (value, number, name)
        diff = int(rng.choice([-2, -1, 1, 1, 3]))
        result.append((side, ("boom" if rng.integers(0, 20) == 0 else row, time, diff)))
    return result


def nested_loops(rows: list[tuple[JoinSide, tuple]], null_safe: tuple[int, ...] = ()) -> Counter:
    """Every pair, by the definition."""
    result: Counter = Counter()
    lefts = [u for s, u in rows if s is JoinSide.LEFT]
    rights = [u for s, u in rows if s is JoinSide.RIGHT]
    for row, time, diff in lefts + rights:
        if isinstance(row, str):
            result[(None,) * 4, row, time] += diff
    for left, t, d in lefts:
        for right, u, e in rights:
            if isinstance(left, str) or isinstance(right, str):
                continue
            pairs = [(left[0], right[2]), (left[1], right[1])]
            if all(a == b and (a is not None or i in null_safe) for i, (a, b) in enumerate(pairs)):
                result[(left[0], left[2], right[0] + 0.0, right[1]), None, max(t, u)] += d * e
    return plain_decimals(result)


def plain_decimals(counter: Counter) -> Counter:
    out: Counter = Counter()
    for (row, error, time), diff in counter.items():
        out[tuple(float(v) if i == 1 and v is not None else v for i, v in enumerate(row)), error, time] += diff
    return Counter({k: d for k, d in out.items() if d})


def batches(rng: np.random.Generator, rows: list[tuple[JoinSide, tuple]]) -> list[tuple[JoinSide, Updates]]:
    """Rows as batches of random sizes, sides interleaved at random."""
    result = []
    for side in JoinSide:
        own = [u for s, u in rows if s is side]
        cuts = sorted(rng.integers(0, len(own) + 1, rng.integers(0, 4)).tolist())
        for begin, end in zip([0, *cuts], [*cuts, len(own)], strict=True):
            types = LEFT_TYPES if side is JoinSide.LEFT else RIGHT_TYPES
            result.append((side, updates(types, own[begin:end])))
    rng.shuffle(result)
    return result


def decimals(rows: list[tuple[JoinSide, tuple]]) -> list[tuple[JoinSide, tuple]]:
    from decimal import Decimal

    def fix(side, row):
        return row if isinstance(row, str) or side is JoinSide.RIGHT else (row[0], row[1], Decimal(str(row[2])))

    return [(s, (fix(s, row), t, d)) for s, (row, t, d) in rows]


def run(driver: Driver, rng: np.random.Generator, rows: list, cuts: list[int], spec: JoinSpec = SPEC) -> Counter:
    """All steps of a history; what came out."""
    result: Counter = Counter()
    for lower, upper in pairwise(cuts):
        moved = [(s, (row, max(t, cuts[0]), d)) for s, (row, t, d) in rows]
        chosen = [(s, u) for s, u in moved if lower <= u[1] < upper]
        stream = batches(rng, decimals(chosen))
        shared = {s: spec.input(s).arrangement for s in JoinSide if spec.input(s).shared}
        maintain_shared(driver, lower, upper, stream, shared)
        context = driver.context(lower, upper, hydration=lower == cuts[0])
        result.update(contents(join(context, spec, stream)))
        own = [spec.input(s).arrangement for s in JoinSide if not spec.input(s).shared]
        for name in own:
            manifest = driver.manifests[name].append(context.writer.written.get(name, []), lower, upper)
            driver.manifests[name] = driver.merged(manifest.allow_compaction(upper - 1))
    return plain_decimals(result)


def maintain_shared(
    driver: Driver, lower: int, upper: int, stream: list, shared: dict[JoinSide, ArrangementId]
) -> None:
    """Does the work of an index's own dataflow before the join's step: it is complete up to `upper`, and not compacted
    yet."""
    for side, name in shared.items():
        context = driver.context(lower, upper)
        list(arrange(context, name, [u for s, u in stream if s is side]))
        manifest = driver.manifests[name].allow_compaction(lower - 1)
        driver.manifests[name] = driver.merged(manifest.append(context.writer.written.get(name, []), lower, upper))


@pytest.mark.parametrize("shared", ["", "left", "right", "left right"])
@pytest.mark.parametrize("seed", seeds(3, 12))
def test_split_any_steps_and_chunks_give_the_rows_of_nested_loops(seed: int, shared: str, tmp_path: Path) -> None:
    """Chunks of 1 to 64 rows, any interleaving, any step bounds, sides maintained or shared."""
    rng = np.random.default_rng(seed)
    rows = history(rng, 20, 120)
    expected = nested_loops([(s, (row, max(t, 3), d)) for s, (row, t, d) in rows])
    assert len(expected) > 20
    left, right = (
        JoinInput(i.arrangement, i.output_columns, s.value in shared) for s, i in ((s, SPEC.input(s)) for s in JoinSide)
    )
    for chunk_rows, cuts in ((1, [3, 20]), (7, [3, 4, 9, 10, 20]), (64, list(range(3, 21)))):
        directory = tmp_path / str(chunk_rows)
        driver = Driver(directory, *manifests(3), chunk_rows=chunk_rows)

        result = run(driver, rng, rows, cuts, JoinSpec(left, right))

        assert result == expected


def test_null_safe_keys_meet(tmp_path: Path) -> None:
    """NULL meets NULL only at the key positions that say so."""
    rng = np.random.default_rng(1)
    rows = history(rng, 10, 100)
    for null_safe in ((), (0,), (1,), (0, 1)):
        driver = Driver(tmp_path / str(null_safe), *manifests())
        spec = JoinSpec(SPEC.left, SPEC.right, null_safe)
        assert run(driver, rng, rows, [0, 5, 10], spec) == nested_loops(rows, null_safe)


def test_a_cross_join_has_no_key(tmp_path: Path) -> None:
    """With an empty key every row meets every other."""
    layout = Layout.of_rows([pa.int64()], [])
    driver = Driver(tmp_path, *(Manifest.empty(a, layout, 0) for a in (LEFT, RIGHT)))
    one = updates([pa.int64()], [((i,), 1, 1) for i in range(30)])
    context = driver.context(0, 2)
    spec = JoinSpec(JoinInput(LEFT, (0,)), JoinInput(RIGHT, (0,)))
    result = contents(join(context, spec, [(JoinSide.LEFT, one), (JoinSide.RIGHT, one)]))
    assert result == {((a, b), None, 1): 1 for a in range(30) for b in range(30)}


def test_a_skewed_key_comes_out_in_bounded_slices(tmp_path: Path) -> None:
    """1,000 x 1,000 rows of one key: no output batch is longer than a chunk."""
    layout = Layout.of_rows([pa.int64(), pa.int64()], [0])
    driver = Driver(tmp_path, *(Manifest.empty(a, layout, 0) for a in (LEFT, RIGHT)), chunk_rows=4096)
    side = updates([pa.int64()] * 2, [((7, i), 1, 1) for i in range(1000)])
    spec = JoinSpec(JoinInput(LEFT, (1,)), JoinInput(RIGHT, (1,)))
    sizes = [b.num_rows for b in join(driver.context(0, 2), spec, [(JoinSide.LEFT, side), (JoinSide.RIGHT, side)])]
    assert max(sizes) <= 4096
    assert sum(sizes) == 1_000_000


def test_many_chunks_leave_few_files(tmp_path: Path) -> None:
    """A long hydration merges its runs as it goes: probes stay short, and no scratch file is left."""
    driver = Driver(tmp_path, *manifests(), chunk_rows=1)
    rng = np.random.default_rng(0)
    context = driver.context(0, 20, hydration=True)
    rows = decimals(history(rng, 20, 300))
    list(join(context, SPEC, [(s, updates(LEFT_TYPES if s is JoinSide.LEFT else RIGHT_TYPES, [u])) for s, u in rows]))
    written = [ref.file for refs in context.writer.written.values() for ref in refs]
    assert len(written) < 40
    assert stored_files(tmp_path) == set(written)


def test_products_of_diffs_are_checked() -> None:
    """A product that does not fit is an error; large ones that do are exact."""
    a = np.array([2**31, -(2**40), 3])
    assert multiply_diffs(a, np.array([2**31, 2**22, -5])).tolist() == [2**62, -(2**62), -15]
    for pair in ((2**32, 2**31), (-(2**32), 2**32), (2**62, 4)):
        with pytest.raises(DiffOverflow):
            multiply_diffs(np.array([1, pair[0]]), np.array([1, pair[1]]))


def test_keys_of_different_types_are_refused(tmp_path: Path) -> None:
    """The planner casts keys to one type; a stage that forgot is refused, as nothing could ever meet."""
    layouts = Layout.of_rows([pa.int64()], [0]), Layout.of_rows([pa.string()], [0])
    driver = Driver(tmp_path, *(Manifest.empty(a, x, 0) for a, x in zip((LEFT, RIGHT), layouts, strict=True)))
    with pytest.raises(ValueError, match=r"left has \(int64\), right \(string\)"):
        list(join(driver.context(0, 1), JoinSpec(JoinInput(LEFT, ()), JoinInput(RIGHT, ())), []))


def test_a_shared_arrangement_behind_or_compacted_too_far_is_refused(tmp_path: Path) -> None:
    """The step must find its own updates there, and still told apart from those before it."""
    spec = JoinSpec(SPEC.left, JoinInput(RIGHT, (0,), shared=True))
    driver = Driver(tmp_path, *manifests())
    with pytest.raises(OutOfFrontier, match="readable in"):
        list(join(driver.context(0, 5), spec, []))
    driver.manifests[RIGHT] = driver.manifests[RIGHT].append([], 0, 9).allow_compaction(5)
    with pytest.raises(OutOfFrontier, match="readable in"):
        list(join(driver.context(5, 9), spec, []))


def test_updates_outside_the_step_are_refused(tmp_path: Path) -> None:
    """A time below lower or at upper, and a batch of another schema, are programming errors that are caught."""
    driver = Driver(tmp_path, *manifests())
    for time in (4, 10):
        with pytest.raises(MalformedUpdates, match=f"times {time}..{time}"):
            list(join(driver.context(5, 10), SPEC, [(JoinSide.LEFT, updates(LEFT_TYPES, [(("x", 1, None), time, 1)]))]))
    with pytest.raises(MalformedUpdates, match="expected updates of schema"):
        list(join(driver.context(5, 10), SPEC, [(JoinSide.RIGHT, updates(LEFT_TYPES, []))]))


def test_a_hydration_keeps_nothing_that_was_taken_back(tmp_path: Path) -> None:
    """All its times are one: of a history of corrections only what is left is state."""
    driver = Driver(tmp_path, *manifests(), chunk_rows=1 << 10)
    context = driver.context(0, 1, hydration=True)
    corrected = [(("x", 1, Decimal(n)), 0, diff) for n in range(100) for diff in (1, -1)]
    left = updates(LEFT_TYPES, [*corrected, (("x", 1, Decimal(7)), 0, 1)])
    assert sum(out.num_rows for out in join(context, SPEC, [(JoinSide.LEFT, left)])) == 0
    driver.commit(context)

    assert driver.manifests[LEFT].rows == 1
