"""pgjdbc, and a program that uses it: its jars come from Maven, by their checksums.

make jdbc-driver    installs the pinned version into the cache, once
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from bench.harness.cache import cache_folder, cached
from tests.waiting import BOUND

VERSION = "42.7.14"
HERE = Path(__file__).parent
SUMS = HERE / "jars.sha256"
PROGRAM = HERE / "Checks.java"
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId><version>1</version>
<dependencies><dependency><groupId>org.postgresql</groupId><artifactId>postgresql</artifactId>
<version>{VERSION}</version></dependency></dependencies></project>"""
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:2.8"
MAVEN_SECONDS = 600
_JAVA = ("java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def install() -> Path:
    """The folder with the driver's jars (1.4 MB); Maven fetches them if they are not there."""
    return cached(cache_folder().parent / "pgjdbc" / VERSION, _make)


def _make(folder: Path) -> None:
    (folder / "pom.xml").write_text(_POM)
    goal = [f"{_PLUGIN}:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    subprocess.run(["mvn", "-q", "-B", "-f", folder / "pom.xml", *goal], check=True, timeout=MAVEN_SECONDS)
    wanted = {name: digest for digest, name in (line.split() for line in SUMS.read_text().splitlines())}
    found = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in folder.glob("*.jar")}
    if found != wanted:
        raise ValueError(f"Maven gave other files than {SUMS.name} names: {found}")


def checks(password: str, *servers: tuple[str, str]) -> list[dict[str, str]]:
    """The results of the program at each server, by the name of the check. `servers`: the URL, and a query that does
    not end by itself."""
    command = [*_JAVA, "-cp", f"{install()}/*", str(PROGRAM), *(argument for server in servers for argument in server)]
    environment = {**os.environ, "PGPASSWORD": password}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=BOUND, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    found: list[dict[str, str]] = [{} for _ in servers]
    for line in done.stdout.splitlines():
        at, name, text = line.split("\t", 2)
        found[int(at)][name] = text.replace("\\n", "\n")
    return found


if __name__ == "__main__":
    install()
