"""The wire: .proto files and what protoc makes of them (`make proto`). Only `wire.py` and servers import it."""
