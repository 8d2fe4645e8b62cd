# SPDX-License-Identifier: Apache-2.0
"""Progress bars on stderr, on terminals only; other output is printed above them."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from delegate.inspect import Progress as StartProgress
from delegate.inspect import Watch, watched

_PATIENCE_S = 0.5  # shorter operations get no bar
_PER_SECOND = 4  # redraws, which take time from what is measured
_PHASES = {
    "device": "testing the device",
    "build": "building kernels",
    "tune": "measuring kernels",
    "upload": "filling the device's memory",
}
_WORDS = TextColumn("{task.description}", markup=False)  # file names may contain brackets
_above: list[str] = []  # text displayed above the bars
_open: list[Progress] = []  # active bars, displayed or not yet
_is_quiet = False


def be_quiet(is_quiet: bool) -> None:
    """Disable bars, or enable them again: implements --quiet."""
    global _is_quiet
    _is_quiet = is_quiet


def print_above(text: str) -> bool:
    """Print text above the displayed bar; False: there is none, and nothing is printed."""
    bar = next((bar for bar in reversed(_open) if bar.live.is_started), None)
    if bar is not None:
        bar.console.print(Text(text), soft_wrap=True)
    return bar is not None


@contextlib.contextmanager
def steps(what: str, count: Callable[[], int]) -> Iterator[Callable[[], None]]:
    """Yield a function to call after each step, which advances a bar on a terminal.

    `count`: returns the number of steps; called only if there is a bar.
    """
    if not _can_move():
        yield lambda: None
        return
    columns = _WORDS, BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn()
    with _bar(*columns, patience_s=0) as bar:
        task = bar.add_task(what, total=count())
        yield lambda: bar.advance(task)


def parts() -> AbstractContextManager[Callable[[float | None, str], None]]:
    """Yield a function that reports the completed fraction, 0 to 1, and the next step."""
    words = TextColumn(
        "{task.description}", markup=False, table_column=Column(no_wrap=True, ratio=1)
    )
    columns = BarColumn(20), TaskProgressColumn(), TimeElapsedColumn(), words
    return _told(*columns, total=1.0, expand=True)


@contextlib.contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that reports the completed and total amount; 0: unknown; as `parts`."""
    with parts() as tell:
        yield lambda done, total: tell(done / total if total else 0.0, what)


@contextlib.contextmanager
def waiting(what: str) -> Iterator[Callable[[str], None]]:
    """Display the current activity and its duration, for progress that cannot be measured.

    Displayed as described in `_told`. Yields a function that changes the text.
    """
    with _told(SpinnerColumn(), _WORDS, TimeElapsedColumn()) as tell:
        tell(None, what)
        yield partial(tell, None)


@contextlib.contextmanager
def start(name: str = "") -> Iterator[Watch]:
    """Display the start-up progress of delegates and models; `name`: of what is started.

    Yields a Watch, which records the time of each phase.
    """
    before = f"{name}: " if name else ""

    def tell(at: StartProgress) -> None:
        after = f" ({at.what})" if at.what and at.phase != "upload" else ""
        show(at.part, f"{before}{_PHASES[at.phase]}{after}")

    with parts() as show, watched(tell) as watch:
        yield watch


@contextlib.contextmanager
def _told(
    *columns: ProgressColumn, total: float | None = None, expand: bool = False
) -> Iterator[Callable[[float | None, str], None]]:
    """Yield a function that reports the completed fraction, None: unknown; and the next step.

    On a terminal it advances a bar, displayed after a short delay. Inside another bar it
    changes that bar's text.
    """
    if not _can_move():
        yield lambda part, what: None
    elif _open:
        outer = _open[-1]
        task, before = outer.task_ids[0], outer.tasks[0].description

        def tell(part: float | None, what: str) -> None:
            outer.update(task, description=what if part is None else f"{what} {part:.0%}")

        yield tell
        outer.update(task, description=before)
    else:
        with _bar(*columns, patience_s=_PATIENCE_S, expand=expand) as bar:
            made = bar.add_task("", total=total)
            yield lambda part, what: bar.update(made, completed=part, description=what)


@contextlib.contextmanager
def _bar(*columns: ProgressColumn, patience_s: float, expand: bool = False) -> Iterator[Progress]:
    """Yield a bar that is displayed after a delay and removed at the end."""
    console = Console(stderr=True)
    bar = _Bar(
        *columns, console=console, transient=True, refresh_per_second=_PER_SECOND, expand=expand
    )
    clock = threading.Timer(patience_s, bar.start)
    clock.daemon = True
    _open.append(bar)
    try:
        if patience_s:
            clock.start()
        else:
            bar.start()
        yield bar
    finally:
        if patience_s:
            clock.cancel()
            clock.join()
        _open.remove(bar)
        bar.stop()


def _can_move() -> bool:
    """Whether bars are enabled, and stderr is a terminal that can redraw them."""
    return not _is_quiet and sys.stderr.isatty() and not Console(stderr=True).is_dumb_terminal


@contextlib.contextmanager
def below(text: str) -> Iterator[None]:
    """Display the bars inside below a text, which is removed with them."""
    _above.append(text)
    try:
        yield
    finally:
        _above.pop()


class _Bar(Progress):
    def get_renderables(self) -> Iterable[RenderableType]:
        yield from map(Text.from_ansi, _above)
        yield from super().get_renderables()


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:.1f}/s")
