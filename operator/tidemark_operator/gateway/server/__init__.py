"""The gateway's gRPC server: listener, calls, status codes."""
