"""Compiling once: the key of a set of binaries, and builds that fail, die or run at once.

The compiler here is a script that writes its target as Go would; that the real one compiles the real programs
is shown by every test that starts a control plane.
"""

import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.waiting import BOUND
from tidemark_devcluster.errors import AssetsIncomplete, BuildFailed, NotEnoughRoom
from tidemark_devcluster.programs import recipe
from tidemark_devcluster.programs.build import (
    ensure_binaries,
    ensure_built,
    ensure_helm,
    ensure_toxiproxy,
    ensure_versitygw,
    from_assets,
)
from tidemark_devcluster.programs.cache import BuildCache, available_memory, require_disk
from tidemark_devcluster.programs.progress import ProgressOutput
from tidemark_devcluster.programs.recipe import KUBE_APISERVER, KUBE_CONTROLLER_MANAGER, PROGRAMS

COMPILER = """#!/bin/sh
if [ "$1" = env ]; then echo go1.26.8; exit; fi
while [ "$1" != -o ]; do shift; done
echo "$2" >>"$CALLS"
printf half >"$2"
{action}
printf whole >"$2"
"""


class Bench:
    """A cache, a compiler and what it was asked to do."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = BuildCache(folder / "cache")
        self.calls = folder / "calls"
        self.environ = {
            "PATH": f"{folder}:{os.defpath}",
            "CALLS": str(self.calls),
            "TIDEMARK_CACHE": str(self.cache.root),
        }

    def compiler(self, action: str = ":") -> None:
        (self.folder / "go").write_text(COMPILER.format(action=action))
        (self.folder / "go").chmod(0o755)

    def build(self) -> dict[recipe.Program, Path]:
        return ensure_built(PROGRAMS, self.cache, self.environ, ProgressOutput(io.StringIO()))

    def made(self) -> dict[str, str]:
        folder = self.cache.binaries(recipe.digest())
        return {path.name: path.read_text() for path in folder.iterdir()} if folder.exists() else {}

    def compiled(self) -> int:
        return len(self.calls.read_text().splitlines())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path)
    made.compiler()
    return made


ALL_WHOLE = {program.name: "whole" for program in PROGRAMS}


@pytest.mark.parametrize(
    ("ensure", "program"),
    [
        (ensure_helm, recipe.HELM_CLI),
        (ensure_toxiproxy, recipe.TOXIPROXY_SERVER),
        (ensure_versitygw, recipe.VERSITYGW_SERVER),
    ],
)
def test_a_separate_build_rebuilds_nothing(
    bench: Bench, ensure: Callable[[dict[str, str], ProgressOutput], Path], program: recipe.Program
) -> None:
    """It has a go.mod and a folder of its own: a new helm must not compile the control plane again."""
    bench.build()
    made = ensure(bench.environ, ProgressOutput(io.StringIO()))

    assert made.parent == bench.cache.binaries(recipe.digest((program,)))
    assert bench.made() == ALL_WHOLE
    assert bench.compiled() == len(PROGRAMS) + 1


def test_each_program_is_compiled_once(bench: Bench) -> None:
    """The second build finds everything; Go's own caches are gone after the first."""
    bench.build()
    paths = bench.build()
    assert {path.name: path.read_text() for path in paths.values()} == ALL_WHOLE
    assert bench.compiled() == len(PROGRAMS)
    assert not bench.cache.go.exists()


def test_a_build_that_fails_says_why_and_leaves_nothing_half(bench: Bench) -> None:
    """The compiler's last words are in the error; the next build succeeds."""
    bench.compiler("echo undefined: frobnicate >&2; exit 1")
    with pytest.raises(BuildFailed, match="undefined: frobnicate"):
        bench.build()
    assert set(bench.made()) <= {f"{KUBE_APISERVER.name}.partial"}
    bench.compiler()
    bench.build()
    assert bench.made() == ALL_WHOLE


def test_a_build_that_is_killed_leaves_its_lock_to_the_compiler_and_the_next_goes_on(bench: Bench) -> None:
    """SIGKILL in the middle of a program: what was done stays, the half program is made anew.

    The orphaned compiler still holds the lock, so the next build begins only after it has ended.
    """
    started, go_on = bench.folder / "started", bench.folder / "go-on"
    os.mkfifo(started)
    os.mkfifo(go_on)
    bench.compiler(f'case "$2" in *kubectl*) echo >{started}; cat {go_on};; esac')
    program = "import os, sys; from tidemark_devcluster.main import main; sys.exit(main(['build']))"
    environ = {**bench.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.Popen([sys.executable, "-c", program], env=environ, stderr=subprocess.DEVNULL)
    started.read_text()
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert bench.made()["kubectl.partial"] == "half"
    next_one = subprocess.Popen(
        [sys.executable, "-c", program], env=environ, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    assert next_one.stderr is not None
    assert "another build is running" in next_one.stderr.readline()
    bench.compiler()
    go_on.write_text("")
    next_one.communicate(timeout=BOUND)
    assert next_one.returncode == 0
    assert bench.made() == ALL_WHOLE
    assert bench.compiled() == len(PROGRAMS) + 1


def test_two_builds_at_once_compile_each_program_once(bench: Bench) -> None:
    """The one waits for the other and finds its work done."""
    program = "import sys; from tidemark_devcluster.main import main; sys.exit(main(['build']))"
    environ = {**bench.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    builds = [
        subprocess.Popen(
            [sys.executable, "-c", program], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(3)
    ]
    assert [build.wait(timeout=BOUND) for build in builds] == [0, 0, 0]
    assert bench.compiled() == len(PROGRAMS)
    assert bench.made() == ALL_WHOLE


def test_another_go_sum_is_another_set_of_binaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digest follows what is compiled: equal for equal sources, different for one changed byte."""
    for module in (recipe.KUBERNETES, recipe.ETCD):
        shutil.copytree(recipe.module_folder(module), tmp_path / module)
    before = recipe.digest()
    monkeypatch.setattr(recipe, "SOURCE", tmp_path)
    assert recipe.digest() == before
    with (tmp_path / recipe.ETCD / "go.sum").open("a") as sums:
        sums.write("\n")
    assert recipe.digest() != before


def test_the_go_mod_files_say_which_versions(tmp_path: Path) -> None:
    """Versions stand in go.mod alone; everything else reads them there."""
    assert recipe.kubernetes_version().startswith("v1.34.")
    assert recipe.minimum_go() == (1, 24)


def test_kubebuilder_assets_are_used_and_only_missing_programs_are_compiled(bench: Bench) -> None:
    """Their usual maker has no controller manager: that one is ours."""
    assets = bench.folder / "assets"
    assets.mkdir()
    for program in PROGRAMS:
        if program != KUBE_CONTROLLER_MANAGER:
            (assets / program.name).touch(0o755)
    binaries = ensure_binaries({**bench.environ, "KUBEBUILDER_ASSETS": str(assets)}, ProgressOutput(io.StringIO()))
    assert binaries.kube_apiserver == assets / "kube-apiserver"
    assert bench.made() == {"kube-controller-manager": "whole"}
    assert binaries.kube_controller_manager.parent == bench.cache.binaries(recipe.digest())


def test_kubebuilder_assets_that_lack_a_server_are_refused_by_its_name(tmp_path: Path) -> None:
    """A folder with half of it is a mistake, not a wish."""
    (tmp_path / "etcd").touch(0o755)
    with pytest.raises(AssetsIncomplete, match="lacks kube-apiserver, kubectl"):
        from_assets({"KUBEBUILDER_ASSETS": str(tmp_path)})


@pytest.mark.parametrize(
    ("environ", "root"),
    [
        ({"TIDEMARK_CACHE": "/c", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/c"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/tidemark"),
        ({"HOME": "/h"}, "/h/.cache/tidemark"),
    ],
)
def test_the_cache_lies_where_the_environment_says(environ: dict[str, str], root: str) -> None:
    """Outside the checkout, so that every clone shares it."""
    assert BuildCache.of(environ).root == Path(root)


def test_too_little_disk_is_said_in_one_line(tmp_path: Path) -> None:
    """With what is needed, what there is, and what to do; also for a folder that is not there yet."""
    with pytest.raises(NotEnoughRoom, match=r"building needs .* GiB of disk at .*free: free some, or choose"):
        require_disk(tmp_path / "not" / "there", 1 << 60, "building")


def test_available_memory_is_the_figure_of_the_kernel() -> None:
    """Free memory alone would leave out what the page cache gives back."""
    assert available_memory("MemTotal: 8 kB\nMemFree: 1 kB\nMemAvailable: 5 kB\n") == 5 * 1024
    assert available_memory("MemTotal: 8 kB\n") is None
