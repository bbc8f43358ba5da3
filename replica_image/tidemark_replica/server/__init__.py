"""The replica's gRPC endpoint, and which client it serves."""
