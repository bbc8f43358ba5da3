"""Files of a Go module: taken once, and held to go.sum.

The real Go takes them, from a module proxy that is a folder of the test's.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tidemark_devcluster.errors import DownloadFailed
from tidemark_devcluster.programs import recipe, toolchain
from tidemark_devcluster.programs.cache import BuildCache
from tidemark_devcluster.programs.module_files import ensure_excerpt
from tidemark_devcluster.programs.progress import ProgressOutput
from tidemark_devcluster.programs.recipe import Excerpt

# Go is there where the control plane was built; elsewhere it is installed
pytestmark = pytest.mark.cluster

KINDS = Excerpt("kinds", "example.com/kinds", ("crds/a.yaml", "crds/b.yaml"))
WHOLE = {"a.yaml": "kind: A\n", "b.yaml": "kind: B\n"}
GO_MOD = "module example.com/kinds\n"


class Bench:
    """A module in a proxy, a go.mod with its checksums, and an empty cache."""

    def __init__(self, folder: Path) -> None:
        self.cache, self.own = BuildCache(folder / "cache"), folder / KINDS.module
        self.proxy = folder / "proxy"
        self.versions = self.proxy / KINDS.path / "@v"
        self.environ = {**os.environ, "GOPROXY": f"file://{self.proxy}", "GOSUMDB": "off", "GONOPROXY": "none"}
        self.publish(WHOLE)
        self.own.mkdir()
        (self.own / "go.mod").write_text("module test\n\ngo 1.24.0\n\nrequire example.com/kinds v1.0.0\n")
        go = toolchain.find_go((1, 24), BuildCache.of(os.environ), os.environ, ProgressOutput(io.StringIO()))
        self.environ["PATH"] = f"{go.executable.parent}:{self.environ['PATH']}"
        given = {"GOMODCACHE": str(folder / "go"), "GOFLAGS": "-mod=mod -modcacherw"}
        subprocess.run(
            [go.executable, "mod", "download", KINDS.path],
            cwd=self.own,
            env=toolchain.environment(self.environ) | given,
            check=True,
        )
        assert KINDS.path in (self.own / "go.sum").read_text()

    def publish(self, files: dict[str, str]) -> None:
        self.versions.mkdir(parents=True, exist_ok=True)
        (self.versions / "list").write_text("v1.0.0\n")
        (self.versions / "v1.0.0.info").write_text('{"Version": "v1.0.0"}')
        (self.versions / "v1.0.0.mod").write_text(GO_MOD)
        with zipfile.ZipFile(self.versions / "v1.0.0.zip", "w") as packed:
            packed.writestr("example.com/kinds@v1.0.0/go.mod", GO_MOD)
            for name, text in files.items():
                packed.writestr(f"example.com/kinds@v1.0.0/crds/{name}", text)

    def take(self, excerpt: Excerpt = KINDS) -> dict[str, str]:
        paths = ensure_excerpt(excerpt, self.cache, self.environ, ProgressOutput(io.StringIO()))
        return {path.name: path.read_text() for path in paths}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    shutil.copytree(recipe.module_folder(recipe.KUBERNETES), tmp_path / recipe.KUBERNETES)
    monkeypatch.setattr(recipe, "SOURCE", tmp_path)
    return Bench(tmp_path)


def test_files_are_taken_once(bench: Bench) -> None:
    """The second time nobody is asked."""
    assert bench.take() == WHOLE
    shutil.rmtree(bench.proxy)

    assert bench.take() == WHOLE


def test_a_module_that_is_not_the_one_of_go_sum_is_refused(bench: Bench) -> None:
    """The client refuses a module file whose digest differs, from any server, and takes the right one afterwards."""
    bench.publish({**WHOLE, "a.yaml": "kind: Other\n"})
    with pytest.raises(DownloadFailed, match="checksum mismatch"):
        bench.take()

    bench.publish(WHOLE)
    assert bench.take() == WHOLE


def test_a_module_that_cannot_be_had_is_said_in_one_line(bench: Bench) -> None:
    """With what to look at."""
    shutil.rmtree(bench.proxy)

    with pytest.raises(DownloadFailed, match=r"^downloading example\.com/kinds failed \(.+\): check the network"):
        bench.take()
