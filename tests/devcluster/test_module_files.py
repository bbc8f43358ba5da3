"""Files of a Go module: taken once, held to go.sum, and whole or not there.

The real Go takes them, from a module proxy that is a folder of the test's.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from tidemark_devcluster.errors import DownloadFailed
from tidemark_devcluster.programs import recipe, toolchain
from tidemark_devcluster.programs.cache import Cache
from tidemark_devcluster.programs.module_files import ensure_excerpt
from tidemark_devcluster.programs.progress import Progress
from tidemark_devcluster.programs.recipe import Excerpt

# Go is there where the control plane was built; elsewhere it is installed
pytestmark = pytest.mark.cluster

KINDS = Excerpt("kinds", "example.com/kinds", ("crds/a.yaml", "crds/b.yaml"))
WHOLE = {"a.yaml": "kind: A\n", "b.yaml": "kind: B\n"}
GO_MOD = "module example.com/kinds\n"


class Bench:
    """A module in a proxy, a go.mod with its checksums, and an empty cache."""

    def __init__(self, folder: Path) -> None:
        self.cache, self.own = Cache(folder / "cache"), folder / KINDS.module
        self.proxy = folder / "proxy"
        self.versions = self.proxy / KINDS.path / "@v"
        self.environ = {**os.environ, "GOPROXY": f"file://{self.proxy}", "GOSUMDB": "off", "GONOPROXY": "none"}
        self.publish(WHOLE)
        self.own.mkdir()
        (self.own / "go.mod").write_text("module test\n\ngo 1.24.0\n\nrequire example.com/kinds v1.0.0\n")
        go = toolchain.find_go((1, 24), Cache.of(os.environ), os.environ, Progress(io.StringIO()))
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
        paths = ensure_excerpt(excerpt, self.cache, self.environ, Progress(io.StringIO()))
        return {path.name: path.read_text() for path in paths}

    def left(self) -> list[str]:
        return sorted(path.name for path in (self.cache.root / "excerpts").iterdir())


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    shutil.copytree(recipe.module_folder(recipe.KUBERNETES), tmp_path / recipe.KUBERNETES)
    monkeypatch.setattr(recipe, "SOURCE", tmp_path)
    return Bench(tmp_path)


def test_files_are_taken_once(bench: Bench) -> None:
    """The second time nobody is asked; of Go's caches nothing is left."""
    assert bench.take() == WHOLE
    shutil.rmtree(bench.proxy)

    assert bench.take() == WHOLE
    assert bench.left() == [recipe.digest((KINDS,))]


def test_a_module_that_is_not_the_one_of_go_sum_is_refused(bench: Bench) -> None:
    """Whoever serves it. Nothing of it is kept, and the right one is taken afterwards."""
    bench.publish({**WHOLE, "a.yaml": "kind: Other\n"})
    with pytest.raises(DownloadFailed, match="checksum mismatch"):
        bench.take()
    assert bench.left() == []

    bench.publish(WHOLE)
    assert bench.take() == WHOLE


def test_a_module_that_cannot_be_had_is_said_in_one_line(bench: Bench) -> None:
    """With what to look at."""
    shutil.rmtree(bench.proxy)

    with pytest.raises(DownloadFailed, match=r"^downloading example\.com/kinds failed \(.+\): check the network"):
        bench.take()


def test_a_file_that_the_module_does_not_have_is_named(bench: Bench) -> None:
    """As after an edit of the version alone."""
    with pytest.raises(DownloadFailed, match=r"has no crds/c\.yaml"):
        bench.take(replace(KINDS, files=("crds/a.yaml", "crds/c.yaml")))
    assert bench.left() == []


def test_crash_a_killed_download_is_repeated(bench: Bench) -> None:
    """Its folder has a name of its own until it is whole."""
    half = bench.cache.excerpt(f"{recipe.digest((KINDS,))}.partial") / "taken"
    half.mkdir(parents=True)
    (half / "a.yaml").write_text("kin")

    assert bench.take() == WHOLE
    assert bench.left() == [recipe.digest((KINDS,))]
