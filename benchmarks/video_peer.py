# SPDX-License-Identifier: Apache-2.0
"""The loop that people write: OpenCV decodes and resizes, TFLite's XNNPACK classifies.

python -m benchmarks.video_peer MODEL VIDEO THREADS
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

from benchmarks.measure import imported
from tflite_opencl.interpreters.runtime import find_runtime


def classified(model: str, source: str, threads: int) -> dict[str, Any]:
    """Classify every frame, and return what came of it in the words of label_image's JSON."""
    cv2 = imported("cv2", "opencv-python-headless")
    interpreter = find_runtime().interpreter(model, threads, "auto")
    interpreter.allocate_tensors()
    (given, *_), result = interpreter.get_input_details(), interpreter.get_output_details()
    _, height, width, _ = given["shape"]
    capture = cv2.VideoCapture(source)
    taken_ms: list[float] = []
    begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
    while True:
        is_read, frame = capture.read()
        if not is_read:
            break
        at_s = time.perf_counter()
        resized = cv2.resize(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB), (width, height))
        if given["dtype"] == np.float32:
            resized = resized.astype(np.float32) / 127.5 - 1
        interpreter.set_tensor(given["index"], resized.astype(given["dtype"])[np.newaxis])
        interpreter.invoke()
        for each in result:
            interpreter.get_tensor(each["index"])
        taken_ms.append(1e3 * (time.perf_counter() - at_s))
    seconds, cpu_s = time.perf_counter() - begun_s, time.process_time() - begun_cpu_s
    median, p99 = np.percentile(taken_ms, (50, 99))
    return {
        "pictures_per_second": len(taken_ms) / seconds,
        "video": {
            "latency_ms": {"median": median, "p99": p99},
            "cpu_load": {"all": cpu_s / seconds},
        },
    }


if __name__ == "__main__":
    print(json.dumps(classified(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
