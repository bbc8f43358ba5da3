"""Programs of the tests that come as jars from Maven, into the cache, once. Their checksums are in this folder."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench.harness.cache import cache_folder, cached

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId><version>1</version>
<dependencies>{dependencies}</dependencies></project>"""
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</dependency>"
_CLASSIFIED = """<classifier>{}</classifier><exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId>
</exclusion></exclusions>"""


def installed(name: str, version: str, artifacts: Sequence[str], sums: Path, *options: str) -> Path:
    """The folder with the jars of `artifacts` (`group:artifact:version`) and of what they need; Maven fetches them if
    they are not there. Of an artifact with a classifier (`group:artifact:version:classifier`) it has that jar alone.
    `sums`: their checksums, as sha256sum prints them; `options`: further ones of Maven."""

    def make(folder: Path) -> None:
        dependencies = "".join(_dependency(*each.split(":")) for each in artifacts)
        (folder / "pom.xml").write_text(_POM.format(dependencies=dependencies))
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}", *options]
        subprocess.run(["mvn", "-q", "-B", "-f", folder / "pom.xml", *goal], check=True)
        _compare(folder, sums)

    return cached(cache_folder().parent / name / version, make)


def _dependency(group: str, artifact: str, version: str, classifier: str = "") -> str:
    return _DEPENDENCY.format(group, artifact, version, _CLASSIFIED.format(classifier) if classifier else "")


def _compare(folder: Path, sums: Path) -> None:
    wanted = {name: digest for digest, name in (line.split() for line in sums.read_text().splitlines())}
    found = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in folder.glob("*.jar")}
    if found != wanted:
        wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
        raise AssertionError(f"Maven gave other files than {sums.name} names: {', '.join(wrong)}")


def java(*homes: Path) -> list[str]:
    """A JVM of 256 MB with all jars of the folders; the class and its arguments follow."""
    options = ["-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [
        "java",
        *options,
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp",
        os.pathsep.join(f"{home}/*" for home in homes),
    ]
