# SPDX-License-Identifier: Apache-2.0
"""The base of all errors that a command shows as one line, without a traceback."""

from delegate import DelegateError, NoDeviceError, ProfileError
from tflite_opencl.common.exit_codes import BUG, ERROR, NO_DEVICE, USAGE


class OneLineError(Exception):
    """Something the user can act on; the text is one line that says what."""


class UsageError(OneLineError):
    """The command line is wrong, or names what does not exist."""


def code_of(error: Exception) -> int:
    """Return the exit code of a command that this error ends."""
    if isinstance(error, (UsageError, ProfileError)):
        return USAGE
    if isinstance(error, NoDeviceError):
        return NO_DEVICE
    return ERROR if isinstance(error, (OneLineError, DelegateError)) else BUG
