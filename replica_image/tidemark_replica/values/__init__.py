"""Values that all rooms use: SQL types as Arrow types, literals, texts of errors and failures."""
