"""The planner's gRPC service and its worker processes."""
