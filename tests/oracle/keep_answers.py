"""`python -m tests.oracle.keep_answers`: ask Spark, and write kept_answers.json anew (minutes)."""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

from tests.oracle.cases import CASES
from tests.oracle.histories import random_history
from tests.oracle.kept_answers import FILE, KeptAnswer, kept_answer, write
from tests.oracle.reference import SparkReference
from tests.oracle.seeds import FEW, seeds
from tidemark_replica.spark.session import SparkHolder, start_spark

PROGRESS_CASES = 50


def main() -> None:
    """Every case of test_oracle.py, over the histories of `make test`."""
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    answers: dict[str, KeptAnswer] = {}
    with tempfile.TemporaryDirectory(prefix="tidemark-oracle-") as scratch:
        holder = SparkHolder(lambda: start_spark("local[2, 2]", "1g", Path(scratch)))
        holder.get().sparkContext.setLogLevel("OFF")  # references that raise are expected
        reference = SparkReference(holder.get())
        for number, case in enumerate(CASES, 1):
            for seed in seeds(FEW):
                history = random_history(case.tables, seed, changes=case.changes, tick=case.tick)
                found = reference.answers(case.spark or case.sql, case.tables, history, in_files=case.in_files)
                answers[f"{case.name}/{seed}"] = kept_answer(case, history, *found)
            if number % PROGRESS_CASES == 0:
                print(f"{number} of {len(CASES)} cases", file=sys.stderr)
        holder.stop()
    write(answers)
    print(f"{len(answers)} answers are in {FILE}")


if __name__ == "__main__":
    main()
