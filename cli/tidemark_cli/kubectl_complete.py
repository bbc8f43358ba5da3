"""The program `kubectl_complete-tidemark`, which kubectl calls to complete `kubectl tidemark ...`."""

from __future__ import annotations

import sys

from tidemark_cli.completion import kubectl_answer
from tidemark_cli.main import tidemark


def main() -> int:
    sys.stdout.write(kubectl_answer(tidemark, sys.argv[1:]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
