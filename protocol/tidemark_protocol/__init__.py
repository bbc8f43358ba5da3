"""Messages, plans (LIR), frontiers and the command history. Imports nothing else of Tidemark."""
