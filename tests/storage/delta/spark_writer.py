"""Spark with Delta Lake as a writer of Delta tables, in an environment of its own.

No release of `io.delta:delta-spark` fits the Spark that Tidemark runs on, so the last pair that Maven Central and PyPI
both have is pinned: Spark 4.0.1 with Delta 4.0.1. pip and mvn install it into the cache, once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.sax.saxutils
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from bench.harness.cache import cache_folder, cached

VERSION = "4.0.1"
PROGRAM = Path(__file__).parent / "spark_writer_program.py"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId><version>1</version>
<dependencies><dependency><groupId>io.delta</groupId><artifactId>delta-spark_2.13</artifactId><version>{}</version>
<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>
<dependency><groupId>io.delta</groupId><artifactId>delta-storage</artifactId><version>{}</version></dependency>
</dependencies></project>"""


def install() -> Path:
    """The environment, made if it is not there (800 MB, some minutes)."""
    return cached(cache_folder() / "writers" / f"delta-spark-{VERSION}", _make)


def _make(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "-q", f"pyspark=={VERSION}"], check=True)
    version = xml.sax.saxutils.escape(VERSION)
    (folder / "pom.xml").write_text(_POM.format(version, version))
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder / 'delta'}"]
    subprocess.run(["mvn", "-q", "-B", "-f", folder / "pom.xml", *goal], check=True)


class SparkWriter:
    """A process of Spark that runs statements, one after the other. `more_jars`, `settings`: beside those of Delta."""

    def __init__(self, log: Path, more_jars: Sequence[Path] = (), settings: Mapping[str, str] | None = None) -> None:
        home = install()
        python = str(home / "bin" / "python")
        jars = ",".join(str(path) for path in [*sorted((home / "delta").glob("*.jar")), *more_jars])
        environment = os.environ | {"PYSPARK_PYTHON": python}
        for name in ("PYTHONPATH", "SPARK_HOME"):
            environment.pop(name, None)
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [python, str(PROGRAM), jars, json.dumps(dict(settings or {}))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
            )
        assert self._answer() == "ready", log.read_text()[-2000:]

    def sql(self, statement: str) -> None:
        """Runs a statement; an AssertionError has Spark's words if it fails."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(statement) + "\n")
        self._process.stdin.flush()
        assert (answer := self._answer()) == "ok", f"{statement}: {answer}"

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def __enter__(self) -> SparkWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
