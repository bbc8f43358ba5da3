"""The Spark session keeps to its scratch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark


def test_what_a_killed_jvm_leaves_is_in_scratch(spark: Any) -> None:
    """Spark makes folders for artifacts and blocks in the JVM's temporary folder; scratch is removed, that is not."""
    temporary = Path(spark._jvm.java.lang.System.getProperty("java.io.tmpdir"))

    assert temporary == Path(spark.conf.get("spark.local.dir"))
    assert spark.range(3).mapInArrow(lambda batches: batches, "id long").count() == 3
