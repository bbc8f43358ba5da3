"""The output of commands: times, values, rows, tables and progress."""
