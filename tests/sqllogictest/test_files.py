"""The files of sqllogictest in `files/`: every feature of the SQL, in the way that is hardest to get right.

`churn` contains what the other two modes ask and more; `make test-sqllogictest` runs all three.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sqllogictest.first_pass import FAILED, UNSUPPORTED
from tests.sqllogictest.runner import Runner
from tests.waiting import BOUND
from tidemark_replica.render.step_worker.pool import StepWorkers

pytestmark = pytest.mark.spark

FILES = sorted(Path(__file__).with_name("files").glob("*.slt"))
# Files of which planning does not take everything yet. One that is planned whole is to leave this list.
NOT_YET: frozenset[str] = frozenset()


@pytest.fixture(scope="module")
def runner(spark: Any) -> Iterator[Runner]:
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    workers = StepWorkers(member_seconds=BOUND)
    yield Runner(spark, workers=workers, patience=BOUND)
    workers.close()


@pytest.mark.broad
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_oracle_a_file_is_answered_by_views_whose_tables_change(runner: Runner, path: Path, tmp_path: Path) -> None:
    """Each query as a view that is there before its tables are filled, while other changes come and go."""
    outcomes = list(runner.run(path, ["churn"], tmp_path))

    assert [o for o in outcomes if o.kind == FAILED] == []
    refused = {f"{o.place.line}: {o.reason}" for o in outcomes if o.kind == UNSUPPORTED}
    assert bool(refused) == (path.stem in NOT_YET), refused


WRONG = """
statement ok
CREATE TABLE t(a INT, b INT)

statement ok
INSERT INTO t VALUES (1, 2), (2, 0)

query I
SELECT count(*) FROM t
----
3

query I
SELECT a / b FROM t
----
0

query error
SELECT a + b FROM t

statement ok
INSERT INTO u VALUES (1)

query I
SELECT rand() FROM t
----
1

query I label-1
SELECT sum(a) FROM t

query I label-1
SELECT sum(b) FROM t
"""


@pytest.mark.parametrize("mode", ["peek", "before", "churn"])
def test_a_wrong_result_is_seen(runner: Runner, tmp_path: Path, mode: str) -> None:
    """A wrong number, an error, none where one should be, a statement, a label; and what is refused is no failure."""
    path = tmp_path / "wrong.slt"
    path.write_text(WRONG)
    outcomes = sorted(runner.run(path, [mode], tmp_path / "run"), key=lambda o: o.place.line)
    failed = [(o.place.line, o.expected, o.found) for o in outcomes if o.kind == FAILED]

    assert failed == [
        (8, "3", "2"),
        (13, "an answer", "DIVIDE_BY_ZERO"),
        (18, "an error ", "2 rows"),
        (21, "it succeeds", "there is no table u"),
        (32, "the result of label-1", "another one"),
    ]
    assert [o.place.line for o in outcomes if o.kind == UNSUPPORTED] == [24]
