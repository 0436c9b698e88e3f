"""`art-e reproduce`: the chain of the talk as a list of commands, and its report."""
