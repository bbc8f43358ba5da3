"""The Dockerfile, as far as it can be read without building: both targets, all packages, nobody is root."""

from __future__ import annotations

import re
import tomllib

from tests.chart.render import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
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
    assert "requirements.py operator >" in STAGES["operator-packages"]
    assert "requirements.py planner replica >" in STAGES["replica-packages"]


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


def test_versions_are_those_that_were_tested() -> None:
    """Both installations are held to constraints.txt."""
    for stage in ("operator-packages", "replica-packages"):
        assert "--constraint constraints.txt" in STAGES[stage]
