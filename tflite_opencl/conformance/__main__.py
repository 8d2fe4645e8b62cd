# SPDX-License-Identifier: Apache-2.0
"""The start of tflite-delegate-test; command.py is the command itself."""

from __future__ import annotations

import sys

from tflite_opencl.console.start import start


def main() -> int:
    """Run the command with this process's arguments, and return its exit code."""
    return start("tflite_opencl.conformance.command")


if __name__ == "__main__":
    sys.exit(main())
