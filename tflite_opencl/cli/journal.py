# SPDX-License-Identifier: Apache-2.0
"""Log records as entries of systemd's journal, with fields, if stderr leads there."""

from __future__ import annotations

import logging
import os
import socket

from tflite_opencl.cli.messages import printable

SOCKET = "/run/systemd/journal/socket"
_PRIORITIES = (  # of syslog
    (logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6),
)  # fmt: skip


def is_journal(descriptor: int = 2) -> bool:
    """Whether a file handle leads to the journal, as systemd says by JOURNAL_STREAM."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


class JournalHandler(logging.Handler):
    """Sends records to the journal. `extra={"fields": {"model": ...}}` becomes TFLITE_MODEL=..."""

    def __init__(self, identifier: str, otherwise: logging.Handler) -> None:
        """`otherwise`: gets what the journal does not take."""
        super().__init__()
        self._identifier, self._otherwise = identifier, otherwise
        self._channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)

    def emit(self, record: logging.LogRecord) -> None:
        priority = next((p for least, p in _PRIORITIES if record.levelno >= least), 7)
        fields = {
            "MESSAGE": record.getMessage(),
            "PRIORITY": str(priority),
            "SYSLOG_IDENTIFIER": self._identifier,
            "LOGGER": record.name,
        }
        for name, value in getattr(record, "fields", {}).items():
            fields[f"TFLITE_{name.upper()}"] = str(value)
        # A value stays on one line, so none needs the journal's binary form.
        lines = "".join(f"{name}={printable(value)}\n" for name, value in fields.items())
        try:
            self._channel.sendto(lines.encode(errors="backslashreplace"), SOCKET)
        except OSError:
            self._otherwise.handle(record)

    def close(self) -> None:
        self._channel.close()
        super().close()


def journal_or(otherwise: logging.Handler, identifier: str) -> logging.Handler:
    """Return a handler for the journal if stderr leads there, else the given one."""
    return JournalHandler(identifier, otherwise) if is_journal() else otherwise
