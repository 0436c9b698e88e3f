"""The inbox file: schema, opening, search, read. Knows nothing of models."""
