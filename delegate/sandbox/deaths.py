# SPDX-License-Identifier: Apache-2.0
"""What the deaths of child processes say of the trials that the children were at.

A death is a trial's own if a second child ends alike at it, nobody from outside ended them, no
limit of this process is low, and a plain kernel still builds and runs. Then the trial is banned for
a week. Any other second death only leaves the trial out of this start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from delegate.errors import DeviceError
from delegate.sandbox.helper import Heard
from delegate.sandbox.records import Records
from delegate.sandbox.trials import BINARY_OF, BUILD, FILE, SELF_TEST, Trial

# Of a start. Then the device is given up: a driver that hangs costs a minute each time.
_MOST, _MOST_LATE, _MOST_KILLED, _MOST_STRAYS = 30, 5, 6, 3
_MOST_OF_A_FILE = 3  # its other builds use the same instructions
_log = logging.getLogger("delegate")


class Deaths:
    """The deaths of a start's children on one device."""

    def __init__(self, records: Records, broken: Callable[[], str]) -> None:
        """`broken`: tries a plain kernel in another child; how that fails, "" if it works."""
        self._records, self._broken = records, broken
        self._first: dict[Trial, Heard] = {}
        self._count = self._late = self._killed = self._strays = 0

    def take(self, heard: Heard) -> Trial | None:
        """Return the trial that this start goes on without; None: another child tries it again.

        Raises:
            DeviceError: there were too many deaths, or a plain kernel does not work either.
        """
        self._note(heard)
        if not heard.trying:
            return None  # by chance, as it seems
        trial = heard.trying[-1].blamed
        first = self._first.setdefault(trial, heard)
        ended = heard.ended
        is_usual = trial.kind == SELF_TEST and ended.is_own  # an instruction that is not there
        level = logging.INFO if is_usual else logging.WARNING
        what = f"a child process {ended}, as it tried to {trial.words}"
        if first is heard:
            _log.log(level, "%s: another one tries it again", what)
            return None
        if not (first.ended.is_own and ended.is_own and ended.is_like(first.ended)):
            _log.log(level, "%s again: this start does without%s", what, ended.remedy)
            self._records.left_out[trial] = what
            self._leave_file_out(trial, heard, is_kept=False)
            return trial
        if broken := self._broken():
            raise DeviceError(f"the device does not work in this environment: {broken}")
        _log.log(
            level, "%s, as another one did: it is left out for a week, or until "
            "`tflite-opencl info --lift_bans`", what,
        )  # fmt: skip
        self._records.ban(trial, str(ended))
        self._leave_file_out(trial, heard, is_kept=True)
        return trial

    def _note(self, heard: Heard) -> None:
        ended = heard.ended
        self._count += 1
        self._late += ended.is_late
        self._killed += not ended.is_own
        self._strays += ended.is_own and not heard.trying
        if (
            self._count >= _MOST
            or self._late >= _MOST_LATE
            or self._killed >= _MOST_KILLED
            or self._strays >= _MOST_STRAYS
        ):
            raise DeviceError(
                f"a child process that tried the device {heard.ended}{heard.ended.remedy}"
            )

    def _leave_file_out(self, trial: Trial, heard: Heard, is_kept: bool) -> None:
        """Try nothing else of a kernel file if a build of it hangs, or several end their child."""
        if trial.kind not in (BUILD, BINARY_OF):
            return
        ended = sum(each.file == trial.file for each in self._records.left_out)
        if ended < _MOST_OF_A_FILE and not heard.ended.is_late:
            return
        _log.warning("nothing else of %s.cl is tried on this device", trial.file)
        whole = Trial(FILE, trial.file)
        if is_kept and not trial.is_of_a_model:
            self._records.ban(whole, "ended at several")
        else:
            self._records.left_out[whole] = "child processes ended that tried others of its file"
