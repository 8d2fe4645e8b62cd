# SPDX-License-Identifier: Apache-2.0
"""The exceptions of parsers on malformed input, to be caught by readers of untrusted files.

Not in errors.py, which is imported before Ctrl-C is handled.
"""

from __future__ import annotations

import csv
import lzma
import zipfile
import zlib

# Of Python's parsers of JSON, literals, CSV and zip archives, of decompressors,
# and of values with an unexpected type.
PARSING: tuple[type[Exception], ...] = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, OSError, RuntimeError),
    *(SyntaxError, TypeError, ValueError),
    *(csv.Error, lzma.LZMAError, zipfile.BadZipFile, zlib.error),
)
