# SPDX-License-Identifier: Apache-2.0
"""Checks that the probed rules of a TFLite library are those of its version.

python tests/hosts/check_rules.py LIBRARY.so [RULE ...]   RULEs are those that cannot be probed.
"""

from __future__ import annotations

import ctypes
import dataclasses
import sys

from delegate.host.tflite import library
from delegate.host.tflite.runtime_probes import library_kernels, probed_rules

ctypes.CDLL(sys.argv[1])
expected = library.rules_of_library(sys.argv[1])
kernels = library_kernels(sys.argv[1])
assert kernels is not None, "no C interface"
other = library.rules_of_version("TFLite", expected.version, is_older=expected.saturating_cast)
found = probed_rules(other, kernels)
wrong = {
    field.name
    for field in dataclasses.fields(found)
    if getattr(found, field.name) != getattr(expected, field.name)
}
sys.stdout.write(f"TFLite {expected.version}: not told are {', '.join(sorted(wrong))}\n")
sys.exit(wrong != {"batch_matmul_mixes_rows", "linked_lstms", "norm_products_wrap", *sys.argv[2:]})
