"""The frames of the PostgreSQL protocol, version 3.0.

module      what it does
wire        bytes of one connection: bounded reads, writes that wait for the client, TLS
frontend    what clients send, decoded and checked
backend     what servers send
"""
