# SPDX-License-Identifier: Apache-2.0
"""The loop that people write: OpenCV decodes and resizes, TFLite's XNNPACK classifies.

python -m benchmarks.video_peer MODEL VIDEO THREADS
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence

import numpy as np

from benchmarks.measure import imported
from tflite_opencl.common.runtime import find_runtime


def main(arguments: Sequence[str]) -> None:
    """Classify every frame, and write what came of it in the words of label_image's JSON."""
    model, source, threads = arguments[0], arguments[1], int(arguments[2])
    cv2 = imported("cv2", "opencv-python-headless")
    interpreter = find_runtime().interpreter(model, threads, "auto")
    interpreter.allocate_tensors()
    (given, *_), found = interpreter.get_input_details(), interpreter.get_output_details()
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
        for each in found:
            interpreter.get_tensor(each["index"])
        taken_ms.append(1e3 * (time.perf_counter() - at_s))
    seconds, cpu_s = time.perf_counter() - begun_s, time.process_time() - begun_cpu_s
    median, p99 = np.percentile(taken_ms, (50, 99))
    document = {
        "pictures_per_second": len(taken_ms) / seconds,
        "video": {
            "latency_ms": {"median": median, "p99": p99},
            "cpu_load": {"all": cpu_s / seconds},
        },
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main(sys.argv[1:])
