"""The gateway's gRPC server: its address and certificate, its calls, its status codes."""
