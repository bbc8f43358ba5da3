"""Credentials are in their Secret, and nowhere else that users can see."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tests.directory_listing import matching, text_of
from tests.e2e.system import System

KINDS = "computeinstances,computereplicas,datasources,dataflows,events,controllerrevisions"


def check_secrecy(system: System, *secrets: str) -> None:
    """None of the texts is in an object, a log, a command line or an environment; files that have them are this user's
    alone."""
    output = [system.kubectl("get", KINDS, "-o", "yaml")]
    output += [text_of(path) for path in matching(system.home, "**/*") if _is_text(path)]
    for pid in system.replica_pids().values():
        output += [Path(f"/proc/{pid}/{file}").read_text(errors="replace") for file in ("cmdline", "environ")]
    assert len(output) > 2
    for secret in secrets:
        assert not any(secret in text for text in output)
    for name in ("stores", "source-secrets"):
        for folder, _, files in os.walk(system.home / "operator" / name):
            assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
            assert all(stat.S_IMODE(os.stat(Path(folder, file)).st_mode) == 0o600 for file in files)


def _is_text(path: Path) -> bool:
    return path.is_file() and (path.name == "log" or path.suffix in (".log", ".json", ".txt"))
