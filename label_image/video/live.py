# SPDX-License-Identifier: Apache-2.0
"""A run on a video: classifies frames as they arrive, and prints and writes the results."""

from __future__ import annotations

import contextlib
import datetime
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TextIO

from PIL import Image

from label_image import console
from label_image.compare import Outcome
from label_image.document import picture_entry, totals_entry
from label_image.drawing import draw_scene
from label_image.heads.classes import CLASSIFICATION
from label_image.many_pictures import job_of_many
from label_image.paths import open_paths
from label_image.prepare import PreparedRun
from label_image.report import summary_text
from label_image.result import Result, picture_folder
from label_image.series import Series
from label_image.sinks import Sinks
from label_image.video.feed import Feed, InputFrame
from label_image.video.frames import Frames, VideoSource
from label_image.video.load import Latencies, Loads, Parts, Span, loads_text, second_text
from label_image.video.output import VideoFile, check_output
from label_image.video.page import Page
from label_image.video.preprocessor import Preprocessor
from tflite_opencl.console import bars, interrupts
from tflite_opencl.console.exit_codes import ERROR
from tflite_opencl.console.service_manager import Heartbeat

_SECOND = 1.0

log = logging.getLogger("label_image")


class Live:
    """A run on a video."""

    def __init__(self, prepared: PreparedRun, out: TextIO, width: int, video: str) -> None:
        """`width`: of the text on stderr."""
        settings = prepared.settings
        self._width, self._out = width, out
        self._prepared, self._settings = prepared, settings
        options = settings.video_options
        every = True if settings.every_frame else None
        every = False if settings.newest_frame else every
        self._source = VideoSource(video, options, every, settings.source_timeout)
        self._parts = Parts()
        self._page: Page | None = None
        self._file: VideoFile | None = None

    def run(self) -> int:
        """Classify until the video ends or is stopped; write the results, return the exit code.

        Raises: RunError, DefaultModelError, VideoFailed: no frame can be classified.
        """
        prepared, settings = self._prepared, self._settings
        with contextlib.ExitStack() as stack:
            job = job_of_many(prepared)
            check_output(prepared)
            frames = stack.enter_context(Frames(self._source))
            sinks = Sinks(stack, prepared, self._out)
            paths = stack.enter_context(
                open_paths(
                    job, prepared.runtime, prepared.graph, compares_all=settings.compares_all,
                    floats=prepared.meaning.head is not CLASSIFICATION,
                )
            )  # fmt: skip
            # Comparisons after the start would stall a live picture.
            series = Series(paths, compares_all=settings.compares_all, share=0.0)
            options = job.opencl if paths.gpu else None
            preprocessor = stack.enter_context(Preprocessor(prepared.meaning.format, options))
            feed = Feed(frames, preprocessor, self._source.shown)
            sinks.open_lines()
            self._open_shown(stack)
            frames.begin()
            whole = Span(self._counted(frames, feed))
            with contextlib.suppress(KeyboardInterrupt):  # print and write the results so far
                self._classify(series, sinks, frames, feed)
            with interrupts.held():
                frames.close()
                loads = whole.loads(self._counted(frames, feed))
                header: dict[str, Any] = {"interrupted": True} if interrupts.was_pressed() else {}
                header["video"] = self._entry(loads, preprocessor)
                judgement = series.judgement
                sinks.end(header, totals_entry(judgement, settings.cpu_threads))
        facts = [*self._facts(loads, preprocessor), *sinks.facts]
        flag = settings.table_flag
        text = summary_text(judgement, prepared.kernels, self._width, facts, flag)
        console.write(sys.stderr, text)
        if code := self._code(frames):
            return code
        console.log_messages(judgement.end_messages)
        return judgement.exit_code

    def _open_shown(self, stack: contextlib.ExitStack) -> None:
        """Open the outputs that frames are drawn for. Raises: RunError: one cannot be opened."""
        settings = self._settings
        if settings.output_video is not None:
            self._file = stack.enter_context(VideoFile(settings.output_video, self._out))
        if settings.show is not None:
            title = f"{self._source.shown}, {self._prepared.model.name}"
            self._page = stack.enter_context(Page(settings.show, title))
            log.info("the live picture is at %s", self._page.url)

    def _code(self, frames: Frames) -> int:
        """Log how the video ended, and return the exit code."""
        name = self._source.shown
        if frames.why:
            log.error("the video %s ended after %d frames: %s", name, frames.decoded, frames.why)
            return ERROR
        if not (frames.decoded or interrupts.was_pressed()):
            log.error("the video %s has no frame that can be decoded", name)
            return ERROR
        return 0

    def _classify(self, series: Series, sinks: Sinks, frames: Frames, feed: Feed) -> None:
        """Classify all frames; stop early when the output has no reader."""
        # A second queued frame would be stale by the time the device is free.
        buffers = None if frames.every else series.devices
        outcomes = series.outcomes_of(feed, buffers)
        with bars.waiting("waiting for frames") as tell, contextlib.closing(outcomes):
            second, latencies, heart = Span(self._parts), Latencies(), Heartbeat()
            for outcome in outcomes:
                heart.beat()
                input_frame = feed.under_way.popleft()
                spent_ms = 1e3 * (time.perf_counter() - input_frame.frame.at_s)
                for each in (latencies, self._parts.latencies):
                    each.add(spent_ms)
                self._parts.classified += 1
                before_s = time.thread_time()
                is_read = self._report(outcome, input_frame, spent_ms, sinks)
                self._parts.showing_s += time.thread_time() - before_s
                interrupts.check()
                if second.seconds >= _SECOND:
                    text = second_text(second, self._counted(frames, feed), latencies)
                    tell(text)
                    if self._page is not None:
                        self._page.tell(text)
                    second, latencies = Span(self._parts), Latencies()
                is_shown = self._file is not None and self._file.is_read
                if not (is_read or sinks.sinks or is_shown or self._page):
                    break  # a closed pipe, as with `| head`

    def _report(
        self, outcome: Outcome, input_frame: InputFrame, spent_ms: float, sinks: Sinks
    ) -> bool:
        """Print and write a frame's results; return whether the rows have a reader."""
        settings, is_read = self._settings, False
        most = settings.num_results_of_several
        result = Result(self._prepared.meaning, outcome.outputs, outcome.size, most)
        if not settings.is_on_stdout:
            row = result.row(f"{outcome.path} {input_frame.frame.seconds:.3f} s")
            is_read = console.write(self._out, row)
        self._draw(result, input_frame)
        if settings.output_dir is not None:
            folder = picture_folder(settings.output_dir, input_frame.frame.number, "frame")
            result.write(folder, input_frame.pixels, settings.num_results)
        if sinks.sinks:
            sinks.add(picture_entry(outcome, result) | _when(input_frame, spent_ms))
        return is_read

    def _draw(self, result: Result, input_frame: InputFrame) -> None:
        """Draw a frame's results for the viewers."""

        def draw() -> Image.Image:
            return draw_scene(input_frame.pixels, result.scene, self._settings.num_results)

        if self._file is not None:
            self._file.add(draw(), input_frame.frame.seconds)
        if self._page is not None:
            number = f"frame {input_frame.frame.number}, {input_frame.frame.seconds:.2f} s"
            self._page.show(draw, result.lines, number)

    def _counted(self, frames: Frames, feed: Feed) -> Parts:
        """Return the counters so far."""
        parts = self._parts
        parts.decoded, parts.dropped = frames.decoded, frames.dropped
        parts.damaged = frames.damaged
        parts.decoding_s, parts.preparing_s = frames.cpu_s(), feed.cpu_s
        return parts

    def _facts(self, loads: Loads, preprocessor: Preprocessor) -> list[tuple[str, str]]:
        parts = self._parts
        damaged = f", {parts.damaged} damaged" if parts.damaged else ""
        facts = [("frames", f"{parts.decoded} decoded, {parts.dropped} dropped{damaged}")]
        if (median := parts.latencies.quantile(0.5)) is not None:
            slow = parts.latencies.quantile(0.99)
            facts.append(("latency", f"{median:.1f} ms, p99 {slow:.1f} ms: from frame to result"))
        facts += [("preparing", f"{each.size} {each.text}") for each in preprocessor.times]
        return [*facts, ("load", loads_text(loads))]

    def _entry(self, loads: Loads, preprocessor: Preprocessor) -> dict[str, Any]:
        """Return, for JSON, the statistics of the whole video."""
        parts = self._parts
        of = {name: getattr(parts, name) for name in ("decoded", "dropped", "damaged")}
        quantile: Callable[[float], float | None] = parts.latencies.quantile
        of["latency_ms"] = {"median": quantile(0.5), "p99": quantile(0.99)}
        names = ("decoding", "preparing", "inference", "showing")
        of["cpu_load"] = {name: getattr(loads, name) for name in names}
        of["preparing"] = [asdict(each) for each in preprocessor.times]
        if preprocessor.failure:
            of["preparing_failure"] = preprocessor.failure
        return {"source": self._source.shown, **of, "gpu_load": loads.gpu}


def _when(input_frame: InputFrame, spent_ms: float) -> dict[str, Any]:
    """Return, for JSON, the frame's index and when it was decoded."""
    before = datetime.timedelta(seconds=time.perf_counter() - input_frame.frame.at_s)
    at = datetime.datetime.now(datetime.timezone.utc) - before
    return {
        "frame": input_frame.frame.number,
        "seconds": round(input_frame.frame.seconds, 6),
        "time": at.isoformat(timespec="milliseconds"),
        "latency_ms": round(spent_ms, 3),
    }
