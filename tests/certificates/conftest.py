"""Diagnosing a connection has no time limit in tests: a busy machine is no answer."""

from __future__ import annotations

import pytest

from tests.waiting import BOUND
from tidemark_operator.certificates import diagnosis


@pytest.fixture(autouse=True)
def patient_diagnosis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "SECONDS", BOUND)
