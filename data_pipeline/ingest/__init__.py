"""Raw mail in, an inbox file out; `build.ingest` does it all."""
