"""The restarts of a supervisor: a JSON file that `status` reads and the supervisor alone writes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path


class RestartRecord:
    """The number of restarts of each program since the last `up` that found no supervisor."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, int]:
        """Read the record of each program. A file that is absent or torn counts nothing."""
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            return {str(name): int(count) for name, count in found.items()}
        except (FileNotFoundError, ValueError, AttributeError, TypeError):
            return {}

    def count(self, programs: Iterable[str]) -> None:
        """One restart more of each."""
        counts = self.read()
        for name in programs:
            counts[name] = counts.get(name, 0) + 1
        self._write(counts)

    def clear(self) -> None:
        self._write({})

    def _write(self, counts: dict[str, int]) -> None:
        new = self._path.with_name(f".{self._path.name}")
        new.write_text(json.dumps(counts), encoding="utf-8")
        os.replace(new, self._path)
