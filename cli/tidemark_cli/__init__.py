"""`tidemark` and `kubectl tidemark`: queries and frontiers from a terminal."""
