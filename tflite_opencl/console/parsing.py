# SPDX-License-Identifier: Apache-2.0
"""What parsers raise on hostile bytes: whatever reads a foreign file's text or archive catches it.

Not in errors.py, which is imported before Ctrl-C is heard.
"""

from __future__ import annotations

import csv
import lzma
import zipfile
import zlib

# Of Python's own parsers of JSON, literals, CSV and zip archives, and of what is packed in them;
# and where a value that they give is not what it should be.
PARSING: tuple[type[Exception], ...] = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, OSError, RuntimeError),
    *(SyntaxError, TypeError, ValueError),
    *(csv.Error, lzma.LZMAError, zipfile.BadZipFile, zlib.error),
)
