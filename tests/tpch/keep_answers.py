"""`python -m tests.tpch.keep_answers`: ask Spark, and write kept_answers.json anew (a minute)."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.tpch.kept_answers import FILE, KeptAnswers
from tests.tpch.spark_answers import SparkAnswers
from tests.tpch.stream import ENDS, Stream
from tidemark_replica.spark.session import SparkHolder, start_spark


def main() -> None:
    """Every query, at the last frontier of `make test`."""
    with tempfile.TemporaryDirectory(prefix="tidemark-tpch-") as scratch:
        stream = Stream(Path(scratch) / "data", ENDS)
        holder = SparkHolder(lambda: start_spark("local[2, 2]", "1g", Path(scratch)))
        last = stream.times[-1]
        answers = SparkAnswers(holder.get(), stream, Path(scratch) / "tables")
        KeptAnswers(stream, last).write(lambda name: answers.at(name, last))
        holder.stop()
    print(f"the answers are in {FILE}")


if __name__ == "__main__":
    main()
