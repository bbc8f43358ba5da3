"""The tests, by concept and not by module."""

import os

# as in what starts Spark: the tests' own process does, too, beside clients that speak gRPC
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
