# SPDX-License-Identifier: Apache-2.0
"""Entries of systemd's journal, by a stand-in for its socket."""

from __future__ import annotations

import io
import logging
import os
from pathlib import Path

import pytest

from tests.support.notified import manager
from tflite_opencl.cli import journal
from tflite_opencl.cli.journal import JournalHandler, is_journal, journal_or


def test_entry_has_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    otherwise = io.StringIO()
    handler = JournalHandler("tflite-opencl", logging.StreamHandler(otherwise))
    log = logging.Logger("tflite_opencl.serve")
    log.addHandler(handler)
    with manager(tmp_path, "journal") as journald:
        monkeypatch.setattr(journal, "SOCKET", journald.path)
        log.error("%s failed\nPRIORITY=0", "gpu\x1b", extra={"fields": {"device": "a\nb"}})
        log.debug("quiet")
        first, second = journald.read()
    assert first == {
        "MESSAGE": "gpu\\x1b failed\\nPRIORITY=0", "PRIORITY": "3", "TFLITE_DEVICE": "a\\nb",
        "SYSLOG_IDENTIFIER": "tflite-opencl", "LOGGER": "tflite_opencl.serve",
    }  # fmt: skip
    assert second["PRIORITY"] == "7"
    assert otherwise.getvalue() == ""
    log.warning("journald is gone")
    assert otherwise.getvalue() == "journald is gone\n"
    handler.close()


def test_journal_is_found_by_the_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = logging.StreamHandler()
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    assert journal_or(plain, "x") is plain
    with (tmp_path / "stream").open("w") as file:
        status = os.fstat(file.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
        assert is_journal(file.fileno())
        assert not is_journal(0)
    assert not is_journal(987)
    status = os.fstat(2)
    monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
    handler = journal_or(plain, "x")
    assert isinstance(handler, JournalHandler)
    handler.close()
