"""The Dockerfile, read without building: targets, packages, versions; no process runs as root."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

from tests.chart.render import ROOT
from tidemark_devcluster.images.build import packages_of

DOCKERFILE = (ROOT / "Dockerfile").read_text()
HEAD = DOCKERFILE.partition("\nFROM ")[0]
STAGES = dict(re.findall(r"^FROM \S+ AS (\S+)\n(.*?)(?=^FROM |\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL))


def test_both_targets_run_unprivileged_under_an_init() -> None:
    """The user is a number, or Kubernetes could not tell that it is not root."""
    for target in ("operator", "replica"):
        assert "USER 65532:65532" in STAGES[target]
        assert re.search(r'ENTRYPOINT \["tini", "--", ', STAGES[target])


def test_only_the_replica_has_a_jvm_and_spark() -> None:
    """The operator holds no engine and reads no data."""
    assert "openjdk" in STAGES["java"]
    assert "COPY --from=java" in STAGES["spark"]
    assert "FROM spark AS replica" in DOCKERFILE
    for stage in ("operator", "base", "python"):
        assert "java" not in STAGES[stage]
    assert "requirements.py operator pgwire >" in STAGES["operator-packages"]
    assert "requirements.py planner replica >" in STAGES["replica-packages"]
    for stage in ("operator", "replica"):
        assert "/prepare.py" in STAGES[f"{stage}-packages"]


def test_every_package_of_the_wheel_is_copied_and_reaches_the_build() -> None:
    """A new package that is forgotten here would be missing from the images alone."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    copied = set(re.findall(r"^COPY (\S+) \S+$", STAGES["code"], re.MULTILINE))
    files = set(re.search(r"^COPY (pyproject.toml .*) \./$", STAGES["build"], re.MULTILINE)[1].split())  # type: ignore[index]
    admitted = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}

    for package in packages:
        assert {package, package.split("/")[0]} & copied
    assert copied | files <= admitted


def test_the_base_is_one_release_and_all_stages_come_from_it() -> None:
    """A tag such as 3.11 would be another Python every two months."""
    arguments = dict(re.findall(r"^ARG (\w+)=(\S+)$", HEAD, re.MULTILINE))
    assert re.fullmatch(r"python:3\.11\.\d+-slim-bookworm|python@sha256:[0-9a-f]{64}", arguments["PYTHON"])
    assert re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)[0] == "${PYTHON}"
    assert set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) <= {"${PYTHON}", *STAGES}
    assert set(re.findall(r"^COPY --from=(\S+)", DOCKERFILE, re.MULTILINE)) <= set(STAGES)


def commands(stage: str) -> list[str]:
    """The commands that are run in it, each on one line."""
    return [run.replace("\\\n", " ") for run in re.findall(r"^RUN ((?:.*\\\n)*.*)$", STAGES[stage], re.MULTILINE)]


def sources(snapshot: str, folder: Path) -> str:
    """Where apt looks once the first stage has run, on a base that looks at a mirror."""
    (folder / "sources.list.d").mkdir(parents=True)
    (folder / "sources.list.d" / "debian.sources").write_text("URIs: http://mirror.example/debian\n")
    (run,) = commands("python")
    subprocess.run(["sh", "-euc", run.replace("/etc/apt", str(folder))], env={"SNAPSHOT": snapshot}, check=True)
    return "".join(path.read_text() for path in folder.rglob("*") if path.is_file())


def test_debians_packages_are_those_of_one_moment(tmp_path: Path) -> None:
    """Unless the base is to say: that of `make images` has the mirror that it was made from, and keeps it."""
    (moment,) = re.findall(r"^ARG SNAPSHOT=(\d{8}T\d{6}Z)$", HEAD, re.MULTILINE)
    assert DOCKERFILE.index("ARG SNAPSHOT\n") < DOCKERFILE.index("apt-get")
    for line in (lines := sources(moment, tmp_path / "then").splitlines()):
        assert re.match(
            rf"deb \[check-valid-until=no\] http://snapshot\.debian\.org/archive/\S+/{moment} bookworm", line
        )
    assert [line.split()[3:] for line in lines] == [
        [suite, "main"] for suite in ("bookworm", "bookworm-updates", "bookworm-security")
    ]
    assert sources("now", tmp_path / "now") == "URIs: http://mirror.example/debian\n"
    assert packages_of("made", made_here=True) == ("--build-arg=PYTHON=made", "--build-arg=SNAPSHOT=now")
    assert packages_of("pulled", made_here=False) == ("--build-arg=PYTHON=pulled",)


def test_pythons_packages_are_those_that_were_tested() -> None:
    """All installations are held to constraints.txt, or install nothing but our own code; so is what builds that."""
    installs = [run for stage in STAGES for run in commands(stage) if "pip " in run]
    assert len(installs) == 4
    for run in installs:
        assert "--constraint constraints.txt" in run or "--no-deps --no-build-isolation" in run
        assert run.count("pip install") + run.count("python install") == 1

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    assert extras["build"] == project["build-system"]["requires"]
    held = set(re.findall(r"^([\w.-]+)==[\w.]+", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    for extra in ("build", "operator", "planner", "replica"):
        assert {re.match(r"[\w-]+", wanted)[0] for wanted in extras[extra]} <= held  # type: ignore[index]
