"""Processes that answer hide their imported modules from the garbage collector before they serve."""

from __future__ import annotations

import gc
from collections.abc import Callable, Coroutine
from types import ModuleType
from typing import Any

import pytest

from tidemark_operator import main as operator
from tidemark_pgwire import main as pgwire

ENOUGH = 10_000


@pytest.mark.parametrize(
    ("module", "run"),
    [
        (pgwire, lambda: pgwire.main(["--insecure-loopback", "--gateway-file", "/none"])),
        (operator, lambda: operator.main(["--orchestrator", "process", "--state-dir", "/none"])),
    ],
    ids=["pgwire", "operator"],
)
def test_imported_modules_are_frozen_before_a_process_serves(
    module: ModuleType, run: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full collection took 40 to 70 ms, and every answer waited for it."""
    frozen = list[int]()

    def served(serving: Coroutine[Any, Any, Any]) -> int:
        serving.close()
        frozen.append(gc.get_freeze_count())
        return 0

    monkeypatch.setattr(module.asyncio, "run", served)
    try:
        assert run() == 0
    finally:
        gc.unfreeze()
    assert frozen[0] > ENOUGH
