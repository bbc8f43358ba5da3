"""Cases are found by their names (`pytest -k NAME`, `named(NAME)`), so no two have the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from tests.continual_tasks.cases import TASKS
from tests.oracle.cases import CASES

NAMES = {"the oracle's": [c.name for c in CASES], "continual tasks": [t.name for t in TASKS]}


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_no_two_cases_have_one_name(names: Iterable[str]) -> None:
    """Else one of them cannot be run alone, and may be taken for the other."""
    assert [name for name, count in Counter(names).items() if count > 1] == []
