"""`python -m tidemark_devcluster` is `tidemark-devcluster`."""

import sys

from tidemark_devcluster.main import main

sys.exit(main())
