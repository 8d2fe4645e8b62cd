# SPDX-License-Identifier: Apache-2.0
"""Models that carry metadata and files, as TensorFlow's metadata writer and others make them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import flatbuffers
import numpy as np

from tflite_opencl.rewrites.tree import read_tree, write_tree

# What a tensor's metadata may be made of; the numbers are those of metadata_schema.fbs.
CONTENTS = {"feature": 1, "image": 2, "bounding box": 3}
KINDS = {"axis labels": 2, "value labels": 3, "score calibration": 4}


def with_metadata(
    model: bytes,
    inputs: Sequence[Mapping[str, Any]] = (),
    outputs: Sequence[Mapping[str, Any]] = (),
    files: Mapping[str, bytes] | None = None,
) -> bytes:
    """Return the model with metadata of its inputs and outputs, and files behind it.

    A tensor has: name, content, mean, std, threshold, calibration (transform, default), and files
    as (name, kind, locale).
    """
    content = metadata(inputs, outputs)
    tree, rest = read_tree(memoryview(model))
    tree["buffers"].append({"data": content})
    entry = {"name": b"TFLITE_METADATA", "buffer": len(tree["buffers"]) - 1}
    tree["metadata"] = [*tree.get("metadata", []), entry]
    return with_files(write_tree(tree, rest), files or {})


def with_files(model: bytes, files: Mapping[str, bytes]) -> bytes:
    """Return the model with a zip archive behind it."""
    if not files:
        return model
    packed = io.BytesIO()
    packed.write(model)
    with zipfile.ZipFile(packed, "a") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def metadata(inputs: Sequence[Mapping[str, Any]], outputs: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the flatbuffer of metadata."""
    builder = flatbuffers.Builder(1024)
    sides = {
        slot: _offsets(builder, [_tensor(builder, tensor) for tensor in side])
        for slot, side in ((2, inputs), (3, outputs))
    }
    subgraphs = _offsets(builder, [_table(builder, offsets=sides)])
    name = builder.CreateString("a model")
    builder.Finish(_table(builder, offsets={0: name, 3: subgraphs}), b"M001")
    return bytes(builder.Output())


def _tensor(builder: Any, tensor: Mapping[str, Any]) -> int:
    units = []
    if "mean" in tensor:
        numbers = {
            slot: builder.CreateNumpyVector(np.array(tensor[name], np.float32))
            for slot, name in ((0, "mean"), (1, "std"))
        }
        units.append((1, _table(builder, offsets=numbers)))
    if "calibration" in tensor:
        transform, default = tensor["calibration"]
        units.append((2, _table(builder, bytes_={0: transform}, floats={1: default})))
    if "threshold" in tensor:
        units.append((3, _table(builder, floats={0: tensor["threshold"]})))
    packed = [_table(builder, bytes_={0: kind}, offsets={1: unit}) for kind, unit in units]
    files = []
    for name, kind, locale in tensor.get("files", ()):
        texts = {0: builder.CreateString(name), 3: builder.CreateString(locale)}
        files.append(_table(builder, bytes_={2: KINDS[kind]}, offsets=texts))
    properties = _table(builder)
    kind = CONTENTS.get(tensor.get("content", ""), 0)
    content = _table(builder, bytes_={0: kind}, offsets={1: properties})
    fields = {0: builder.CreateString(tensor.get("name", "")), 3: content}
    fields |= {4: _offsets(builder, packed), 6: _offsets(builder, files)}
    return _table(builder, offsets=fields)


def _offsets(builder: Any, tables: Sequence[int]) -> int:
    builder.StartVector(4, len(tables), 4)
    for table in reversed(tables):
        builder.PrependUOffsetTRelative(table)
    return int(builder.EndVector())


def _table(
    builder: Any,
    bytes_: Mapping[int, int] | None = None,
    floats: Mapping[int, float] | None = None,
    offsets: Mapping[int, int] | None = None,
) -> int:
    builder.StartObject(8)
    for slot, number in (bytes_ or {}).items():
        builder.PrependUint8Slot(slot, number, 0)
    for slot, value in (floats or {}).items():
        builder.PrependFloat32Slot(slot, value, 0.0)
    for slot, offset in (offsets or {}).items():
        builder.PrependUOffsetTRelativeSlot(slot, offset, 0)
    return int(builder.EndObject())
