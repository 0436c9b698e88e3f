"""Where mail comes from: one module a format, found by looking."""
