"""What is wrong with a connection is looked for as long as it takes: a busy machine is no answer."""

from __future__ import annotations

import pytest

from tests.waiting import BOUND
from tidemark_operator.certificates import diagnosis


@pytest.fixture(autouse=True)
def patient_diagnosis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "SECONDS", BOUND)
