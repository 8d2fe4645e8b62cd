# SPDX-License-Identifier: Apache-2.0
"""Entry point of label_image; the command itself is in command.py."""

from __future__ import annotations

import sys

from tflite_opencl.console.start import start


def main() -> int:
    """Run the command with this process's arguments and return its exit code."""
    return start("label_image.command")


if __name__ == "__main__":
    sys.exit(main())
