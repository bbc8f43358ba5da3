"""Runs psycopg2's tests, which are in the current folder, and prints a line for each: its name, its outcome, what it
said. Standard input has the names of those that ran already. A test that takes too long ends the process."""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import unittest
from collections.abc import Iterator
from typing import Any

LONGEST_SECONDS = 120
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # tests print


def tell(test: unittest.TestCase, kind: str, said: str = "") -> None:
    print(json.dumps([test.id().removeprefix("tests."), kind, said]), file=ANSWERS, flush=True)


def said(error: BaseException | None) -> str:
    """The error and those that it came from."""
    found = list[BaseException]()
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return " <- ".join(f"{type(each).__name__} {getattr(each, 'pgcode', None) or ''} {each}" for each in found)


class Telling(unittest.TestResult):
    """Tells the first outcome of each test at its end."""

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.outcome = ("passed", "")
        tell(test, "began")
        faulthandler.dump_traceback_later(LONGEST_SECONDS, exit=True)

    def stopTest(self, test: unittest.TestCase) -> None:
        faulthandler.cancel_dump_traceback_later()
        tell(test, *self.outcome)
        super().stopTest(test)

    def addError(self, test: Any, err: Any) -> None:
        self._set("failed", said(err[1]))

    def addFailure(self, test: Any, err: Any) -> None:
        self._set("failed", said(err[1]))

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self._set("failed", said(err[1]))

    def addSkip(self, test: Any, reason: str) -> None:
        self._set("skipped", reason)

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        """A failure that is wanted is no failure."""

    def addUnexpectedSuccess(self, test: Any) -> None:
        """Nothing that a server refuses."""

    def _set(self, kind: str, text: str) -> None:
        if self.outcome[0] == "passed":
            self.outcome = (kind, text)
        else:
            self.outcome = (self.outcome[0], f"{self.outcome[1]} and {text}")


def tests_of(suite: Any) -> Iterator[unittest.TestCase]:
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from tests_of(each)
        else:
            yield each


def main() -> None:
    from tests import test_suite  # type: ignore[attr-defined]  # psycopg2's, not ours

    done = set(sys.stdin.read().splitlines())
    left = (test for test in tests_of(test_suite()) if test.id().removeprefix("tests.") not in done)
    unittest.TestSuite(left).run(Telling())  # which keeps no test that ran, and so none of its connections
    print(json.dumps(["", "end", ""]), file=ANSWERS, flush=True)


if __name__ == "__main__":
    main()
