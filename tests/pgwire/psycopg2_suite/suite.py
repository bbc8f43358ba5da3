"""psycopg2's own tests, run before a server: the source distribution that has them comes from the package index, by its
checksum, and the driver itself from its wheel.

make psycopg2-tests    installs both into the cache, once
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.harness.cache import cache_folder, cached
from tests.dialects.postgres import programs

VERSION = "2.9.13"
DIGEST = "d36784fc2dae69523ba4b79c7d1d1b4d6e83e87836874f111262f4db940b16a6"
HERE = Path(__file__).parent
PROGRAM = HERE / "suite_program.py"
REFUSALS = HERE / "refusals.txt"
SECONDS = 1200
LEFT_OUT = (
    "test_connection.ConnectionTests.test_commit_concurrency",
    "test_transaction.QueryCancellationTests.test_statement_timeout",
)
"""A thousand queries of constants, which take minutes on a busy machine; and a timeout of 10 ms for a query that is
refused in about that time."""
_PIP = (sys.executable, "-m", "pip", "--quiet", "--no-input", "--disable-pip-version-check")


def install() -> Path:
    """The folder with the tests, and with the driver in `site` (15 MB)."""
    return cached(cache_folder().parent / "psycopg2" / VERSION, _make)


def _make(folder: Path) -> None:
    postgres = programs()
    assert postgres is not None, "PostgreSQL is not installed: make test-packages"
    with_pg_config = {**os.environ, "PATH": f"{postgres}:{os.environ['PATH']}"}  # pip asks the source for its metadata
    source = ("--no-deps", "--no-binary", ":all:", "--dest", folder, f"psycopg2=={VERSION}")
    subprocess.run([*_PIP, "download", *source], check=True, env=with_pg_config, timeout=SECONDS)
    archive = folder / f"psycopg2-{VERSION}.tar.gz"
    if (found := hashlib.sha256(archive.read_bytes()).hexdigest()) != DIGEST:
        raise ValueError(f"the package index gave another {archive.name}: {found}")
    with tarfile.open(archive) as opened:
        tests = [member for member in opened.getmembers() if "/tests/" in member.name]
        opened.extractall(folder, tests, filter="data")
    (folder / f"psycopg2-{VERSION}" / "tests").rename(folder / "tests")
    wheel = ("--no-deps", "--only-binary", ":all:", "--target", folder / "site", f"psycopg2-binary=={VERSION}")
    subprocess.run([*_PIP, "install", *wheel], check=True, timeout=SECONDS)


@dataclass(frozen=True)
class SuiteOutcome:
    """`kind`: passed, failed, skipped or died (its process did). `said`: the errors, with their SQLSTATE."""

    kind: str
    said: str = ""


def outcomes(variables: Mapping[str, str]) -> dict[str, SuiteOutcome]:
    """The outcome of each test, by its name. `variables`: of the environment, that describe the server."""
    folder, found = install(), dict[str, SuiteOutcome]()
    path = os.pathsep.join([str(folder / "site"), str(folder)])
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    while True:
        done = subprocess.run(
            [sys.executable, "-P", PROGRAM],
            cwd=folder,
            env=environment,
            input="\n".join([*LEFT_OUT, *found]),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        found |= {name: SuiteOutcome(kind, said) for name, kind, said in lines if kind not in ("began", "end")}
        if lines and lines[-1][1] == "end":
            return found
        left = [name for name, kind, _ in lines if kind == "began" and name not in found]
        assert left, f"psycopg2's tests ended with {done.returncode}: {done.stderr[-4000:]}"
        found[left[-1]] = SuiteOutcome("died", f"exit code {done.returncode}: {done.stderr[-2000:]}")


@dataclass(frozen=True)
class Refusals:
    """The tests that are expected not to pass. `reasons`: by their word, a pattern of what such a test says. `tests`:
    by a pattern of names, the word of the reason."""

    reasons: Mapping[str, re.Pattern[str]]
    tests: Mapping[str, str]

    @classmethod
    def read(cls, text: str) -> Refusals:
        reasons, tests = dict[str, re.Pattern[str]](), dict[str, str]()
        for line in text.splitlines():
            words = line.split(maxsplit=2)
            if words and words[0] == "reason":
                reasons[words[1]] = re.compile(words[2], re.DOTALL)
            elif words and words[0] != "#":
                tests[words[0]] = words[1]
        return cls(reasons, tests)

    def differences(self, found: Mapping[str, SuiteOutcome]) -> Iterator[str]:
        """A line for each test whose outcome is not the expected one, and for each line that says nothing."""
        unused = dict(self.tests)
        for name, outcome in found.items():
            listed = [pattern for pattern in self.tests if fnmatch.fnmatchcase(name, pattern)]
            for pattern in listed:
                unused.pop(pattern, None)
            words = {self.tests[pattern] for pattern in listed}
            if outcome.kind == "passed" and listed:
                yield f"{name} passes, and is in the list as {listed[0]}"
            elif outcome.kind != "passed" and not listed:
                yield f"{name} {outcome.kind}: {outcome.said}"
            elif outcome.kind != "passed" and not any(self.reasons[word].search(outcome.said) for word in words):
                yield f"{name} {outcome.kind} for another reason than {', '.join(sorted(words))}: {outcome.said}"
        yield from (f"no test is {pattern}" for pattern in unused)


if __name__ == "__main__":
    install()
