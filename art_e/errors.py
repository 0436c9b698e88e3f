"""The one error class that users see.

The command line prints a `UserError` as one line and exits with code 2; every other exception is
our fault and exits with 1.
"""


class UserError(Exception):
    """Bad input or a missing prerequisite. The message is one line and names the fix."""
