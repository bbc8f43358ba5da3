"""Files of others' Go modules, taken once into the cache. They are never part of the checkout.

    locked ─► go mod download (held to go.sum) ─► the files that are wanted ─► rename; all else is deleted

A folder without `.partial` has all of them, so a download that is killed leaves nothing half. Two at once: the second
waits, then finds everything there.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from tidemark_devcluster.errors import DownloadFailed
from tidemark_devcluster.programs import recipe, toolchain
from tidemark_devcluster.programs.cache import GIB, Cache, require_disk
from tidemark_devcluster.programs.progress import Progress
from tidemark_devcluster.programs.recipe import Excerpt

DOWNLOAD_DISK = GIB // 8
DOWNLOAD_SECONDS = 600
LOCK = "excerpts"


def ensure_monitoring_kinds(environ: Mapping[str, str], progress: Progress) -> tuple[Path, ...]:
    """The CustomResourceDefinitions of PodMonitor and PrometheusRule: from the cache, or downloaded now."""
    return ensure_excerpt(recipe.MONITORING_KINDS, Cache.of(environ), environ, progress)


def ensure_excerpt(excerpt: Excerpt, cache: Cache, environ: Mapping[str, str], progress: Progress) -> tuple[Path, ...]:
    """Its files, in their order. Raises DownloadFailed."""
    folder = cache.excerpt(recipe.digest((excerpt,)))
    if not folder.is_dir():
        with cache.locked(LOCK, partial(progress.say, "another process downloads: waiting for it")) as lock:
            if not folder.is_dir():
                require_disk(cache.root, DOWNLOAD_DISK, f"downloading {excerpt.path}")
                go = toolchain.find_go(recipe.minimum_go((excerpt,)), cache, environ, progress)
                progress.say(f"downloading {excerpt.path} with {go}, once, into {folder}")
                _take(excerpt, folder, go, environ, lock)
    return tuple(folder / Path(file).name for file in excerpt.files)


def _take(excerpt: Excerpt, folder: Path, go: toolchain.Go, environ: Mapping[str, str], lock: int) -> None:
    """Beside its final name, with caches of Go's that go with it, then renamed there."""
    unfinished = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(unfinished, ignore_errors=True)
    taken = unfinished / "taken"
    taken.mkdir(parents=True)
    try:
        module = _download(excerpt, unfinished / "go", go, environ, lock)
        for file in excerpt.files:
            if not (module / file).is_file():
                raise DownloadFailed(f"{excerpt.path} has no {file}: is devcluster/{excerpt.module}/go.mod right?")
            shutil.copyfile(module / file, taken / Path(file).name)
        os.replace(taken, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _download(excerpt: Excerpt, caches: Path, go: toolchain.Go, environ: Mapping[str, str], lock: int) -> Path:
    """Where Go unpacked the module. It inherits the lock, as a compiler does (cache.py)."""
    own = {"GOFLAGS": recipe.GO_FLAGS, "GOMODCACHE": str(caches / "mod"), "GOCACHE": str(caches / "build")}
    try:
        answer = subprocess.run(
            [go.executable, "mod", "download", "-json", excerpt.path],
            cwd=recipe.module_folder(excerpt.module),
            env=toolchain.environment(environ) | own,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_SECONDS,
            check=False,
            pass_fds=(lock,),
        )
    except subprocess.TimeoutExpired:
        raise DownloadFailed(_explain(excerpt, f"nothing came of it in {DOWNLOAD_SECONDS} s")) from None
    said = json.loads(answer.stdout or "{}")
    if answer.returncode != 0 or "Dir" not in said:
        raise DownloadFailed(_explain(excerpt, said.get("Error") or answer.stderr.strip() or "Go said nothing"))
    return Path(said["Dir"])


def _explain(excerpt: Excerpt, why: str) -> str:
    """In one line, with the usual remedy."""
    return f"downloading {excerpt.path} failed ({' '.join(why.split())}): check the network and GOPROXY"
