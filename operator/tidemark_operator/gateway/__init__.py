"""The gateway: what people and tools ask the operator, over gRPC on loopback with a token.

server       listens, checks the token, says where it is
queries      a statement to a peek: what it reads, and at which time
frontiers    live frontiers of everything in a namespace
"""
