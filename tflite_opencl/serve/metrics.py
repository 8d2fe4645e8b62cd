# SPDX-License-Identifier: Apache-2.0
"""The service's metrics for Prometheus."""

from __future__ import annotations

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from tflite_opencl.serve.worker import BatchScheduler

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_PICTURES = (1, 2, 4, 8, 16, 32, 64)
CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """The metrics of one service."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)  # memory, file descriptors, CPU seconds
        self._requests = Counter(
            "tflite_opencl_requests", "Answers, by HTTP's status.", ["model", "status"],
            registry=self._registry,
        )  # fmt: skip
        self._seconds = self._histogram("request_seconds", "A request until its answer.", _SECONDS)
        self._runs = self._histogram("run_seconds", "A run of the model.", _SECONDS)
        self._pictures = self._histogram("run_pictures", "Pictures in a run.", _PICTURES)
        self._waiting = Gauge(
            "tflite_opencl_waiting", "Requests that wait for a run.", ["model"],
            registry=self._registry,
        )  # fmt: skip
        self._failed = Gauge(
            "tflite_opencl_device_failed", "1: the device was given up.", ["model"],
            registry=self._registry,
        )  # fmt: skip

    def watch(self, model: str, worker: BatchScheduler) -> None:
        """Export a worker's state when scraped: queued requests, and whether its device failed."""
        self._waiting.labels(model).set_function(lambda: worker.waiting)
        self._failed.labels(model).set_function(lambda: bool(worker.failure))

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(
            f"tflite_opencl_{name}", text, ["model"], buckets=buckets, registry=self._registry
        )

    def answered(self, model: str, status: int, seconds: float | None) -> None:
        """Count a response; `model`: "" if none is meant. `seconds`: if it ran a model."""
        self._requests.labels(model, str(status)).inc()
        if model and status == 200 and seconds is not None:
            self._seconds.labels(model).observe(seconds)

    def ran(self, model: str, pictures: int, seconds: float) -> None:
        """Count a run."""
        self._runs.labels(model).observe(seconds)
        self._pictures.labels(model).observe(pictures)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        text: bytes = generate_latest(self._registry)
        return text
