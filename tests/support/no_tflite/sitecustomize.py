# SPDX-License-Identifier: Apache-2.0
"""On PYTHONPATH it makes this Python and its children one in which no TFLite is installed."""

import sys

for _name in ("ai_edge_litert", "tflite_runtime"):
    sys.modules[_name] = None  # type: ignore[assignment]
