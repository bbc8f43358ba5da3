"""Protocol Buffers: descriptors, whether a writer's fit the reader's, and messages as columns.

FileDescriptorSet ──descriptors──► message type ──sql_types──► columns of a table
values ──messages──► Arrow arrays
"""
