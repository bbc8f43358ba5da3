"""Values of rows: their types in Arrow, literals, error texts."""
