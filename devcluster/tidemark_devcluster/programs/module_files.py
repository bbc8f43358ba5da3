"""Files of others' Go modules, in the cache. They are never part of the checkout.

`go mod download` is held to go.sum, leaves no half of a module, and asks nobody for a module that it has.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tidemark_devcluster.errors import DownloadFailed
from tidemark_devcluster.programs import recipe, toolchain
from tidemark_devcluster.programs.cache import BuildCache
from tidemark_devcluster.programs.progress import ProgressOutput
from tidemark_devcluster.programs.recipe import Excerpt


def ensure_monitoring_kinds(environ: Mapping[str, str], progress: ProgressOutput) -> tuple[Path, ...]:
    """The CustomResourceDefinitions of PodMonitor and PrometheusRule: from the cache, or downloaded now."""
    return ensure_excerpt(recipe.MONITORING_KINDS, BuildCache.of(environ), environ, progress)


def ensure_excerpt(
    excerpt: Excerpt, cache: BuildCache, environ: Mapping[str, str], progress: ProgressOutput
) -> tuple[Path, ...]:
    """Its files, in their order. Raises DownloadFailed."""
    go = toolchain.find_go(recipe.minimum_go((excerpt,)), cache, environ, progress)
    answer = subprocess.run(
        [go.executable, "mod", "download", "-json", excerpt.path],
        cwd=recipe.module_folder(excerpt.module),
        env=toolchain.environment(environ) | {"GOFLAGS": recipe.GO_FLAGS, "GOMODCACHE": str(cache.modules)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    metadata = json.loads(answer.stdout or "{}")
    if answer.returncode != 0 or "Dir" not in metadata:
        why = " ".join((metadata.get("Error") or answer.stderr or "Go said nothing").split())
        raise DownloadFailed(f"downloading {excerpt.path} failed ({why}): check the network and GOPROXY")
    return tuple(Path(metadata["Dir"]) / file for file in excerpt.files)
