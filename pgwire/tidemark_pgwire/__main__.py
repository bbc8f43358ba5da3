"""`python -m tidemark_pgwire`"""

import sys

from tidemark_pgwire.main import main

sys.exit(main())
