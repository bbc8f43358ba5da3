"""Transactions: nothing is written, so one is a time that its statements read at.

BEGIN ──► the first query reads at the freshest time ──► all later ones read at it ──► COMMIT, ROLLBACK: forgotten
            │ an error
            └──► failed: every statement is refused until ROLLBACK
"""

from __future__ import annotations

from tidemark_pgwire.errors import IN_FAILED_TRANSACTION, LIMIT_EXCEEDED, NO_ACTIVE_TRANSACTION, WireError

MAX_SAVEPOINTS = 200


class Transaction:
    """The transaction of one session. `explicit`: between BEGIN and its end."""

    def __init__(self) -> None:
        self.explicit = self.failed = False
        self.as_of: int | None = None
        self._savepoints = list[tuple[str, int]]()
        """Each name, and how often it was set in a row: some drivers set the same one before each statement."""

    @property
    def state(self) -> bytes:
        """The state that ReadyForQuery has."""
        return b"E" if self.failed else b"T" if self.explicit else b"I"

    def begin(self) -> None:
        self.explicit = True

    def end(self) -> None:
        self.explicit = self.failed = False
        self.as_of = None
        self._savepoints.clear()

    def fail(self) -> None:
        """Note that a statement failed."""
        self.failed = self.explicit

    def pin(self, as_of: int) -> None:
        """Read at `as_of` from now on, unless an earlier query has set the time."""
        if self.explicit and self.as_of is None:
            self.as_of = as_of

    def require_usable(self) -> None:
        if self.failed:
            raise WireError(
                IN_FAILED_TRANSACTION,
                "current transaction is aborted, commands ignored until end of transaction block",
            )

    def savepoint(self, name: str) -> None:
        self._require_explicit("SAVEPOINT")
        if self._savepoints and self._savepoints[-1][0] == name:
            self._savepoints[-1] = name, self._savepoints[-1][1] + 1
        elif len(self._savepoints) >= MAX_SAVEPOINTS:
            raise WireError(LIMIT_EXCEEDED, f"a transaction has at most {MAX_SAVEPOINTS} savepoints: release one")
        else:
            self._savepoints.append((name, 1))

    def release(self, name: str) -> None:
        self._require_explicit("RELEASE SAVEPOINT")
        at = self._found(name)
        times = self._savepoints[at][1]
        self._savepoints[at:] = [(name, times - 1)] if times > 1 else []

    def rollback_to(self, name: str) -> None:
        self._require_explicit("ROLLBACK TO SAVEPOINT")
        del self._savepoints[self._found(name) + 1 :]
        self.failed = False

    def _require_explicit(self, what: str) -> None:
        if not self.explicit:
            raise WireError(NO_ACTIVE_TRANSACTION, f"{what} can only be used in transaction blocks")

    def _found(self, name: str) -> int:
        for at in range(len(self._savepoints) - 1, -1, -1):
            if self._savepoints[at][0] == name:
                return at
        raise WireError("3B001", f'savepoint "{name}" does not exist')
