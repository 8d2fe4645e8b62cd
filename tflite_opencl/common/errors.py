# SPDX-License-Identifier: Apache-2.0
"""The base of all errors that a command shows as one line, without a traceback."""


class OneLineError(Exception):
    """Something the user can act on; the text is one line that says what."""


class UsageError(OneLineError):
    """The command line is wrong, or names what does not exist."""
