"""The command line: the app, its output, and the commands about an inbox."""
