# SPDX-License-Identifier: Apache-2.0
"""Models with embedded metadata and files, as TensorFlow's metadata writer writes them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

from delegate.format.tree import Tree, packed
from tflite_opencl.rewrites.tree import read_tree, write_tree

# Enums of metadata_schema.fbs.
CONTENTS = {"feature": 1, "image": 2, "bounding box": 3}
KINDS = {"axis labels": 2, "value labels": 3, "score calibration": 4}


def with_metadata(
    model: bytes,
    inputs: Sequence[Mapping[str, Any]] = (),
    outputs: Sequence[Mapping[str, Any]] = (),
    files: Mapping[str, bytes] | None = None,
) -> bytes:
    """Return the model with metadata of its inputs and outputs, and an archive of files.

    Keys of a tensor: name, content, mean, std, threshold, calibration (transform, default), and
    files (name, kind, locale).
    """
    content = metadata(inputs, outputs)
    tree, rest = read_tree(memoryview(model))
    tree["buffers"].append({"data": content})
    entry = {"name": b"TFLITE_METADATA", "buffer": len(tree["buffers"]) - 1}
    tree["metadata"] = [*tree.get("metadata", []), entry]
    return with_files(write_tree(tree, rest), files or {})


def with_files(model: bytes, files: Mapping[str, bytes]) -> bytes:
    """Return the model with a zip archive appended."""
    if not files:
        return model
    packed = io.BytesIO()
    packed.write(model)
    with zipfile.ZipFile(packed, "a") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def metadata(inputs: Sequence[Mapping[str, Any]], outputs: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the flatbuffer of the metadata."""
    subgraph = {
        "input_tensor_metadata": [*map(_tensor, inputs)],
        "output_tensor_metadata": [*map(_tensor, outputs)],
    }
    return packed({"name": "a model", "subgraph_metadata": [subgraph]}, "ModelMetadata", b"M001")


def _tensor(tensor: Mapping[str, Any]) -> Tree:
    units: list[Tree] = []
    if "mean" in tensor:
        units.append({"options_type": 1, "options": {n: tensor[n] for n in ("mean", "std")}})
    if "calibration" in tensor:
        transform, default = tensor["calibration"]
        options = {"score_transformation": transform, "default_score": default}
        units.append({"options_type": 2, "options": options})
    if "threshold" in tensor:
        options = {"global_score_threshold": tensor["threshold"]}
        units.append({"options_type": 3, "options": options})
    return {
        "name": tensor.get("name", ""),
        "content": {"content_properties_type": CONTENTS.get(tensor.get("content", ""), 0)},
        "process_units": units,
        "associated_files": [
            {"name": name, "type": KINDS[kind], "locale": locale}
            for name, kind, locale in tensor.get("files", ())
        ],
    }
