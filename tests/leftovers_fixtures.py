"""At the end of a session nothing that a test started is still running.

Sessions with JVMs and control planes are left out: their tests look after what they start themselves, and it takes
its time to end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.replica.process import descendants, living, wait_until


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left_running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Set up first, so checked last: an error names what is left after a while."""
    yield
    if any(item.get_closest_marker(mark) for item in request.session.items for mark in ("spark", "cluster", "e2e")):
        return
    folder = f"{tmp_path_factory.getbasetemp()}/".encode()
    try:
        wait_until(lambda: not remaining_processes(folder))
    except AssertionError:
        pytest.fail(f"still running at the end of the session: {remaining_processes(folder)}")


def remaining_processes(folder: bytes) -> dict[int, str]:
    """Our descendants, and processes that nobody owns any more but that speak of the session's folder. The processes of
    another lane have a folder of the same name in a mount namespace of their own (tests/lanes/memory_folder.py)."""
    ours = namespace(os.getpid())
    named = {int(p.name) for p in Path("/proc").glob("[0-9]*") if folder in command(int(p.name))}
    orphans = {pid for pid in named if namespace(pid) == ours}
    found = living((descendants(os.getpid()) | orphans) - {os.getpid()})
    return {pid: command(pid).replace(b"\0", b" ").decode(errors="replace")[:200] for pid in sorted(found)}


def command(pid: int) -> bytes:
    """Its command line; nothing of one that is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


def namespace(pid: int) -> str:
    """Its mount namespace; nothing of one that is gone."""
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt")
    except OSError:
        return ""
