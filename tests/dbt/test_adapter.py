"""The adapter's own tests, which need dbt's environment, and the environment's files."""

from __future__ import annotations

import re
import tomllib
import zipfile
from pathlib import Path

from tests.dbt import environment


def test_the_adapters_own_tests_pass() -> None:
    run_pytest = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit")
    said = environment.run(*run_pytest, folder=environment.FOLDER, variables={})
    assert re.search(r"\b[1-9]\d* passed", said)


def test_the_wheel_has_the_adapter_and_its_macros(tmp_path: Path) -> None:
    """And no package of dbt's own above them."""
    built = ("-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path))
    environment.run(*built, folder=environment.FOLDER, variables={})
    [wheel] = tmp_path.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    folders = [environment.FOLDER / "dbt" / part / "tidemark" for part in ("adapters", "include")]
    ours = {path for folder in folders for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert names == {str(path.relative_to(environment.FOLDER)) for path in ours}
    assert "dbt/include/tidemark/macros/definitions.sql" in names


def test_every_dependency_is_bounded_and_locked() -> None:
    project = tomllib.loads((environment.FOLDER / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    assert [each for each in wanted if not re.fullmatch(r"[\w.-]+(\[\w+\])?>=[\d.]+,<[\d.]+", each)] == []
    lines = (environment.FOLDER / "constraints.txt").read_text().splitlines()
    locked = {line.partition("==")[0] for line in lines if "==" in line}
    assert {re.split(r"[^\w.-]", each)[0] for each in wanted} - locked == set()
