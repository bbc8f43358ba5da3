"""`python -m tidemark_operator`."""

import sys

from tidemark_operator.main import main

if __name__ == "__main__":
    sys.exit(main())
