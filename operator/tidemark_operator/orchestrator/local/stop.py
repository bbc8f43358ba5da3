"""`python -m tidemark_operator.orchestrator.local.stop STATE_DIR`: ends the processes that an operator left.

Replicas and the planner outlive their operator on purpose. This command ends them when no operator follows. Stop the
operator first: it would start them again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tidemark_operator.orchestrator.local.orchestrator import PLANNER, REPLICAS
from tidemark_operator.orchestrator.local.process_record import Home
from tidemark_operator.orchestrator.local.supervised_process import Child

_TIMEOUT_SECONDS = 60.0
_STEP_SECONDS = 0.1


def stop_all(state: Path) -> bool:
    """End every child of the state folder and remove its home. False: some did not end within a minute."""
    homes = [path for path in [*(state / REPLICAS).glob("*"), state / PLANNER] if path.is_dir()]
    children = [Child(Home(path)) for path in homes]
    for child in children:
        child.want(None)
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while children and time.monotonic() < deadline:
        for child in children:
            child.step(int(time.time() * 1000))
            if child.is_gone:
                child.remove()
        children = [child for child in children if not child.is_gone]
        time.sleep(_STEP_SECONDS if children else 0)
    return not children


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m tidemark_operator.orchestrator.local.stop STATE_DIR", file=sys.stderr)
        return 2
    if stop_all(Path(arguments[0]).absolute()):
        return 0
    print(
        f"some processes did not end within {_TIMEOUT_SECONDS:.0f} s: see {arguments[0]}",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
