"""`tidemark` and `kubectl tidemark`: queries, subscribes, copies and frontiers from a terminal."""
