"""The wire: .proto files and what protoc makes of them (`make proto`). Only `wire/protobuf.py` and servers import
it."""
