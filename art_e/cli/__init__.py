"""The command line: one module a command group, everything heavy imported lazily."""
