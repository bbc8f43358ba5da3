"""What commands print: times, values, rows, tables and progress."""
