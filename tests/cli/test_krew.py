"""The archive and the manifest of krew: what krew checks of a manifest, and a plugin that is installed as krew does."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest

from tests.tidy.checkout import ROOT
from tests.waiting import BOUND
from tools import krew

URL = "https://example.org/releases/"
# as of krew's documentation; it ignores others, and so hides what is misspelt
FIELDS = {"version", "homepage", "shortDescription", "description", "caveats", "platforms"}
SEMANTIC = re.compile(r"v\d+\.\d+\.\d+(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With an archive that has our own packages; those that they need are this environment's."""
    lib, out = tmp_path_factory.mktemp("lib"), tmp_path_factory.mktemp("out")
    for package in ("cli/tidemark_cli", "client/tidemark", "protocol/tidemark_protocol"):
        shutil.copytree(ROOT / package, lib / Path(package).name)
    krew.archive(lib, out, "0.1.0-dev.0")
    return out


def test_a_manifest_is_one_that_krew_takes(folder: Path) -> None:
    """Its own checks: names, a semantic version with v, one line, a sum, a selector by os and arch."""
    manifest = krew.make_manifest(folder, "0.1.0-dev.0", URL)
    assert manifest["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert manifest["kind"] == "Plugin"
    assert manifest["metadata"] == {"name": "tidemark"}
    spec = manifest["spec"]
    assert spec.keys() <= FIELDS
    assert SEMANTIC.fullmatch(spec["version"])
    assert spec["shortDescription"]
    assert "\n" not in spec["shortDescription"]
    (made,) = spec["platforms"]
    assert made.keys() == {"selector", "uri", "sha256", "bin"}
    assert made["selector"]["matchLabels"].keys() == {"os", "arch"}
    (archive,) = folder.glob("*.tar.gz")
    assert made["uri"] == f"https://example.org/releases/{archive.name}"
    assert made["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()


@pytest.fixture
def installed(folder: Path, tmp_path: Path) -> Path:
    """A folder of the PATH, as krew leaves it: the archive is in a store, and the program is linked here."""
    (archive,) = folder.glob("*.tar.gz")
    store, bin = tmp_path / "store", tmp_path / "bin"
    bin.mkdir()
    with tarfile.open(archive) as packed:
        packed.extractall(store, filter="data")
    for needed in Path(sysconfig.get_path("purelib")).iterdir():
        if not (store / "lib" / needed.name).exists():
            (store / "lib" / needed.name).symlink_to(needed)
    (bin / "kubectl-tidemark").symlink_to(store / "kubectl-tidemark")
    (bin / f"python{sys.version_info.major}.{sys.version_info.minor}").symlink_to(sys.executable)
    return bin


def run(bin: Path, *words: str, at: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    path = {"PATH": os.pathsep.join([str(bin), "/usr/bin", "/bin"])}
    return subprocess.run(
        [bin / "kubectl-tidemark", *words],
        env=path | environment,
        cwd=at or bin,
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )


def test_the_plugin_runs_as_krew_installs_it(installed: Path) -> None:
    done = run(installed, "top", "--help")
    assert done.returncode == 0, done.stderr
    assert "kubectl tidemark top" in done.stdout

    done = run(installed, "top", "--help", TIDEMARK_PYTHON="no-python")
    assert done.returncode == 1
    assert done.stderr == "error: kubectl tidemark needs no-python on the PATH, or its path as TIDEMARK_PYTHON\n"


def test_the_plugin_imports_no_module_of_the_current_folder(installed: Path, tmp_path: Path) -> None:
    """The directory may have an archive that somebody else packed. PYTHONPATH may be of another Python."""
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    for module in ("click", "token", "tidemark_cli"):
        (hostile / f"{module}.py").write_text("raise SystemExit(7)")
    for environment in ({}, {"PYTHONPATH": str(hostile)}):
        done = run(installed, "top", "--help", at=hostile, **environment)
        assert done.returncode == 0, done.stderr
        assert "kubectl tidemark top" in done.stdout


def test_kubectl_gets_the_callers_environment(installed: Path, tmp_path: Path) -> None:
    """Its credential plugins may be of another Python, which our packages would break."""
    (installed / "kubectl").write_text(f'#!/bin/sh\necho "PYTHONPATH=$PYTHONPATH" >> {tmp_path}/asked\nexit 1\n')
    (installed / "kubectl").chmod(0o755)
    (tmp_path / "kubeconfig").touch()
    done = run(installed, "top", KUBECONFIG=str(tmp_path / "kubeconfig"), PYTHONPATH="/of/the/caller")
    assert done.returncode == 1, done.stderr
    assert {*(tmp_path / "asked").read_text().splitlines()} == {"PYTHONPATH=/of/the/caller"}


@pytest.mark.parametrize(
    ("version", "expected"),
    [("0.1.0.dev0", "0.1.0-dev.0"), ("1.2.3", "1.2.3"), ("1.0.0rc1", "1.0.0-rc.1"), ("1.0", None)],
)
def test_versions_are_semantic(version: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(ValueError, match="no form"):
            krew.semantic(version)
    else:
        assert krew.semantic(version) == expected
        assert SEMANTIC.fullmatch(f"v{expected}")


def test_two_archives_of_the_same_files_are_the_same(folder: Path, tmp_path: Path) -> None:
    """A checksum can be made again."""
    lib = tmp_path / "lib"
    lib.mkdir()
    (lib / "a.py").write_text("")
    sums = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        os.utime(lib / "a.py")
        sums.append(hashlib.sha256(krew.archive(lib, tmp_path / name, "1.0.0").read_bytes()).hexdigest())
    assert sums[0] == sums[1]
