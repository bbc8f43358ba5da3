"""SQL to LIR through Spark's Catalyst, in a process of its own."""
