"""Raw mail in, a DuckDB inbox out; questions and answers about it."""
