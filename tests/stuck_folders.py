"""A disk that removes files and hangs at folders until it is released."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from tests.waiting import BOUND


class StuckFolders:
    """`asked`: of how many folders it was to remove; `removed`: how many are gone."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.works = threading.Event()
        self.asked = self.removed = 0
        self._rmdir = os.rmdir
        patch.setattr(os, "rmdir", self._hangs)

    def _hangs(self, *of: Any, **how: Any) -> None:
        self.asked += 1
        self.works.wait(BOUND)
        self._rmdir(*of, **how)
        self.removed += 1
