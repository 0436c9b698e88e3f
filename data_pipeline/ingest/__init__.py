"""Raw mail in, an inbox file out. `build.ingest` is the whole of it."""
