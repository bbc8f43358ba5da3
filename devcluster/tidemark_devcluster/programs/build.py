"""Compiles the control plane's programs once, into the cache.

    locked ─► go build -o <program>.partial ─► rename ─► the next program ─► …

A name without `.partial` is a complete binary, so the build after a killed one continues with the next program. The
second of two concurrent builds waits, and then finds everything compiled. Programs in `KUBEBUILDER_ASSETS` take
precedence; only the missing ones are compiled.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tidemark_devcluster.errors import AssetsIncomplete, BuildFailed
from tidemark_devcluster.programs import recipe, toolchain
from tidemark_devcluster.programs.cache import GIB, BuildCache, require_disk, require_memory
from tidemark_devcluster.programs.progress import ProgressLine, ProgressOutput
from tidemark_devcluster.programs.recipe import Program

BUILD_DISK = 5 * GIB
BUILD_MEMORY = 2 * GIB
LOG_TAIL_LINES = 15
Family = tuple[Program, ...]
EXPECTATIONS = {
    recipe.KUBE_APISERVER: "about three minutes on two cores, once",
    recipe.KUBE_CONTROLLER_MANAGER: "about one minute",
    recipe.KUBECTL: "about half a minute",
    recipe.ETCD_SERVER: "about one minute",
    recipe.HELM_CLI: "one to three minutes, once",
    recipe.TOXIPROXY_SERVER: "about a minute, once",
    recipe.VERSITYGW_SERVER: "about a minute, once",
    recipe.KUBELET: "three to five minutes on two cores, once",
    recipe.KUBE_SCHEDULER: "less than a minute",
    recipe.KUBE_PROXY: "less than a minute",
    recipe.COREDNS_SERVER: "one to three minutes, once",
    recipe.PAUSE_PROGRAM: "some seconds",
}


@dataclass(frozen=True)
class Binaries:
    """Where each program of the control plane is."""

    etcd: Path
    kube_apiserver: Path
    kubectl: Path
    kube_controller_manager: Path | None = None
    """None: it is not built yet; the API server serves without it."""


def ensure_binaries(
    environ: Mapping[str, str], progress: ProgressOutput, programs: Family = recipe.PROGRAMS
) -> Binaries:
    """The control plane's programs: from `KUBEBUILDER_ASSETS`, from the cache, or compiled now.

    `programs` may leave out kube-controller-manager; a copy that is already there is returned all the same.
    Raises AssetsIncomplete, BuildFailed or NotEnoughRoom.
    """
    cache = BuildCache.of(environ)
    paths = cached(cache, recipe.PROGRAMS) | from_assets(environ)
    missing = [program for program in programs if program not in paths]
    if missing:
        later = any(program not in paths for program in recipe.PROGRAMS if program not in programs)
        paths |= ensure_built(missing, cache, environ, progress, more_to_come=later)
    return Binaries(
        etcd=paths[recipe.ETCD_SERVER],
        kube_apiserver=paths[recipe.KUBE_APISERVER],
        kubectl=paths[recipe.KUBECTL],
        kube_controller_manager=paths.get(recipe.KUBE_CONTROLLER_MANAGER),
    )


def cached(cache: BuildCache, family: Family) -> dict[Program, Path]:
    """The programs of `family` that the cache holds."""
    folder = cache.binaries(recipe.digest(family))
    return {program: folder / program.name for program in family if (folder / program.name).is_file()}


def ensure_helm(environ: Mapping[str, str], progress: ProgressOutput) -> Path:
    """helm, of the version that the tests of the chart were written for: from the cache, or compiled now."""
    return _ensure_apart(recipe.HELM_CLI, environ, progress)


def ensure_toxiproxy(environ: Mapping[str, str], progress: ProgressOutput) -> Path:
    """toxiproxy, which makes the faults of a network for tests: from the cache, or compiled now."""
    return _ensure_apart(recipe.TOXIPROXY_SERVER, environ, progress)


def ensure_versitygw(environ: Mapping[str, str], progress: ProgressOutput) -> Path:
    """versitygw, which serves a folder as S3 to tests: from the cache, or compiled now."""
    return _ensure_apart(recipe.VERSITYGW_SERVER, environ, progress)


def _ensure_apart(program: Program, environ: Mapping[str, str], progress: ProgressOutput) -> Path:
    """A program that has a go.mod, and so a folder of binaries, of its own."""
    return ensure_built((program,), BuildCache.of(environ), environ, progress, (program,))[program]


def from_assets(environ: Mapping[str, str]) -> dict[Program, Path]:
    """The programs in `KUBEBUILDER_ASSETS`. kube-controller-manager may be missing: kubebuilder leaves it out."""
    named = environ.get("KUBEBUILDER_ASSETS")
    if not named:
        return {}
    folder = Path(named).expanduser().absolute()
    found = {p: folder / p.name for p in recipe.PROGRAMS if os.access(folder / p.name, os.X_OK)}
    lacking = [p.name for p in recipe.PROGRAMS if p not in found and p != recipe.KUBE_CONTROLLER_MANAGER]
    if lacking:
        raise AssetsIncomplete(
            f"KUBEBUILDER_ASSETS={named} lacks {', '.join(lacking)}: add it, "
            "or unset the variable to have all of them built"
        )
    return found


def ensure_built(
    programs: Iterable[Program],
    cache: BuildCache,
    environ: Mapping[str, str],
    progress: ProgressOutput,
    family: Family = recipe.PROGRAMS,
    *,
    more_to_come: bool = False,
) -> dict[Program, Path]:
    """Compile those of `programs` that the cache does not hold. A `family` shares a folder and a digest.

    `more_to_come` keeps Go's own caches (4 GB) for a program of the family that is compiled later.
    """
    return ensure_families({family: tuple(programs)}, cache, environ, progress, more_to_come=more_to_come)


def ensure_families(
    wanted: Mapping[Family, tuple[Program, ...]],
    cache: BuildCache,
    environ: Mapping[str, str],
    progress: ProgressOutput,
    *,
    more_to_come: bool = False,
) -> dict[Program, Path]:
    """Do the same for several families one after the other, so that they share Go's own caches."""
    folders = {family: cache.binaries(recipe.digest(family)) for family in wanted}
    paths = {p: folders[family] / p.name for family, programs in wanted.items() for p in programs}
    if all(path.is_file() for path in paths.values()):
        return paths
    waiting = partial(progress.say, "another build is running: waiting for it")
    with cache.locked("control-plane", waiting) as lock:
        for family, programs in wanted.items():
            missing = [program for program in programs if not paths[program].is_file()]
            if missing:
                purpose = f"building {', '.join(program.name for program in missing)}"
                require_disk(cache.root, BUILD_DISK, purpose)
                require_memory(BUILD_MEMORY, purpose)
                go = toolchain.find_go(recipe.minimum_go(family), cache, environ, progress)
                progress.say(f"{purpose} with {go}, once, into {folders[family]}")
                _build(missing, ProgramBuildContext(go, folders[family], cache, environ, progress, lock))
        if not more_to_come:
            shutil.rmtree(cache.go, ignore_errors=True)  # 4 GB that nothing needs any more
    return paths


@dataclass(frozen=True)
class ProgramBuildContext:
    """The settings of one build, while its lock is held."""

    go: toolchain.Go
    folder: Path
    cache: BuildCache
    environ: Mapping[str, str]
    progress: ProgressOutput
    lock: int


def _build(programs: list[Program], context: ProgramBuildContext) -> None:
    """Compile `programs` one after the other (each uses all cores), while the lock is held."""
    context.folder.mkdir(parents=True, exist_ok=True)
    for leftover in context.folder.glob("*.partial"):
        leftover.unlink()
    for program in programs:
        _compile(program, context)


def go_environment(cache: BuildCache, environ: Mapping[str, str]) -> dict[str, str]:
    """The same for every program, or the build cache would be missed."""
    return toolchain.environment(environ) | {
        "CGO_ENABLED": "0",
        "GOFLAGS": recipe.GO_FLAGS,
        "GOMODCACHE": str(cache.go / "mod"),
        "GOCACHE": str(cache.go / "build"),
    }


def _compile(program: Program, context: ProgramBuildContext) -> None:
    """Compile one program beside its final name, then rename it there."""
    binary = context.folder / program.name
    unfinished = binary.with_name(f"{program.name}.partial")
    log = context.cache.log(program.name)
    log.parent.mkdir(parents=True, exist_ok=True)
    step = context.progress.step(f"building {program.name}", EXPECTATIONS[program])
    try:
        status = _run_compiler(program, unfinished, log, context, step)
    except BaseException:
        step.failed()
        raise
    if status != 0:
        step.failed()
        raise BuildFailed(_explain(program, status, log))
    os.replace(unfinished, binary)
    step.done(f", {binary.stat().st_size / 1e6:.0f} MB")


def _run_compiler(program: Program, target: Path, log: Path, context: ProgramBuildContext, step: ProgressLine) -> int:
    """Run `go build`, showing that time passes; its output goes to the log, its status is returned."""
    options = ["-ldflags", recipe.linker_flags(), "-o", str(target)]
    with log.open("wb") as output:
        compiler = subprocess.Popen(
            [context.go.executable, "build", *options, program.package],
            cwd=recipe.module_folder(program.module),
            env=go_environment(context.cache, context.environ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=(context.lock,),
        )
        try:
            while True:
                try:
                    return compiler.wait(context.progress.interval)
                except subprocess.TimeoutExpired:
                    step.tick()
        except BaseException:
            compiler.terminate()
            compiler.wait()
            raise


def _explain(program: Program, status: int, log: Path) -> str:
    """The error message of a failed build: the end of the compiler's log, and the usual remedies."""
    tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_TAIL_LINES:])
    remedy = "check the network and GOPROXY if modules could not be fetched, memory if it was killed"
    return f"building {program.name} failed (go build: {status}; {remedy}; all of it: {log}):\n{tail}"
