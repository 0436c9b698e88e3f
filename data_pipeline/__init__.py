"""Raw mail in, an inbox file out; and questions about it whose answers are known to be right.

ingest      sources, parsing, merging of copies, the inbox file
golden      questions: written by a model or imported, filtered, verified, split, reviewed
synthetic   a made-up company's mail, with planted facts and the questions that they answer"""
