# SPDX-License-Identifier: Apache-2.0
"""Write the whole models of the tests, at their full sizes: python -m tests.models.write DIR.

docs/ops.md has a table of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from benchmarks.networks import ssd_mobilenet_v1
from delegate.inspect import Graph, write_model
from tests.support.detectors import blazeface, efficientdet_lite0
from tests.support.speech import dtln, keyword_lstm, keywords, wake_word, yamnet_of_waves
from tests.support.transformers import Bert, Conformer, MobileBert, Whisper
from tests.support.yolo import yolo

MODELS: Mapping[str, Callable[[], Graph | bytes]] = {
    "bert_tiny": Bert().graph,
    "mobilebert": MobileBert().graph,
    "whisper_tiny_encoder": Whisper().graph,
    "conformer_encoder": Conformer().graph,
    "dtln": dtln,
    "keywords_svdf": keywords,
    "keywords_lstm": keyword_lstm,
    "wake_word": wake_word,
    "yamnet": yamnet_of_waves,
    "blazeface": blazeface,
    "ssd_mobilenet_v1": ssd_mobilenet_v1,
    "efficientdet_lite0": efficientdet_lite0,
    "yolo_v8n": partial(yolo, 8),
    "yolo_v11n": partial(yolo, 11),
}


def main(folder: Path) -> None:
    """Write all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, result in MODELS.items():
        model = result()
        content = model if isinstance(model, bytes) else write_model(model)
        (folder / f"{name}.tflite").write_bytes(content)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
