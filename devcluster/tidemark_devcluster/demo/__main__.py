"""`python -m tidemark_devcluster.demo`."""

import sys

from tidemark_devcluster.demo.main import main

sys.exit(main())
