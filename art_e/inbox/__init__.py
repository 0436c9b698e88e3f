"""The inbox file: schema, opening, search, read."""
