"""Messages as protobuf, and protobuf messages as frames of a gRPC stream."""
