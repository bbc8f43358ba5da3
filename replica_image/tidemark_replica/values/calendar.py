"""The first and the last date and timestamp: years 1 to 9999, as SQL has them, counted from 1970."""

from __future__ import annotations

DAY_US = 86_400_000_000
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31, in days."""
FIRST_US, LAST_US = FIRST_DAY * DAY_US, (LAST_DAY + 1) * DAY_US - 1
"""Microseconds; a bound in coarser units is the floor of the quotient."""
