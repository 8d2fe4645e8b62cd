# SPDX-License-Identifier: Apache-2.0
"""Generator of schema.json, from flatc's Python classes of the .tflite schema.

`python -m delegate.format.make_schema FILE` writes it. ai-edge-litert contains the classes, in
schema_py_generated.py. They are parsed, never executed.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

SCHEMA = Path(__file__).with_name("schema.json")

# flatc's classes do not record which enum a numeric field belongs to: this table does, by field
# name. It applies to tables of options, and to numbers of 8 and 32 bits.
_ENUM_OF_FIELD = {
    "algorithm": "RngAlgorithm",
    "combiner": "CombinerType",
    "compare_type": "StablehloComparisonType",
    "comparison_direction": "StablehloComparisonDirection",
    "composite_attributes_format": "CustomOptionsFormat",
    "fused_activation_function": "ActivationFunctionType",
    "idx_out_type": "TensorType",
    "in_data_type": "TensorType",
    "kernel_type": "LSTMKernelType",
    "key_dtype": "TensorType",
    "mode": "MirrorPadMode",
    "out_data_type": "TensorType",
    "out_type": "TensorType",
    "output_type": "TensorType",
    "padding": "Padding",
    "precision_config": "StablehloPrecisionConfig",
    "quantized_bias_type": "TensorType",
    "reduce_function": "ReduceWindowFunction",
    "type": "LSHProjectionType",
    "value_dtype": "TensorType",
    "weights_format": "FullyConnectedOptionsWeightsFormat",
}


def schema_of(source: str) -> dict[str, dict[str, dict[str, object]]]:
    """Return the enums and tables defined by flatc's Python code.

    `enums`: name -> member -> number. `tables`: name -> field -> [slot, type, default, enum] as
    schema.py's `fields` reads them; trailing empty entries are omitted. A type is a number's
    ("int8"), "string", "table NAME" or "union", preceded by "vector " for a vector.
    """
    enums: dict[str, dict[str, object]] = {}
    tables: dict[str, dict[str, object]] = {}
    for cls in ast.parse(source).body:
        if not isinstance(cls, ast.ClassDef):
            continue
        methods = {each.name: each for each in cls.body if isinstance(each, ast.FunctionDef)}
        if "Init" in methods:
            tables[cls.name] = dict(_fields(cls.name, methods))
        elif not methods:
            enums[cls.name] = dict(_members(cls))
    return {"enums": enums, "tables": tables}


def _members(cls: ast.ClassDef) -> Iterator[tuple[str, object]]:
    for each in cls.body:
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
            yield each.targets[0].id, ast.literal_eval(each.value)


def _fields(table: str, methods: dict[str, ast.FunctionDef]) -> Iterator[tuple[str, list[object]]]:
    for name, method in methods.items():
        text = ast.unparse(method)
        offset = re.search(r"_tab\.Offset\((\d+)\)", text)
        base = re.sub(r"(AsNumpy|Length|IsNone)$", "", name)
        if offset is None or (base != name and base in methods):
            continue
        field = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
        # A vtable starts with two 16-bit sizes, followed by 16 bits per slot.
        slot, kind = (int(offset[1]) - 4) // 2, _kind(text)
        is_enum = table.endswith("Options") and kind.removeprefix("vector ") not in ("int64", "")
        enum = _ENUM_OF_FIELD.get(field, "") if is_enum else ""
        last = method.body[-1]
        default = ast.literal_eval(last.value) if isinstance(last, ast.Return) and last.value else 0
        found = [slot, kind, None if kind.startswith("vector ") else default, enum]
        while found[-1] in ("", None):
            found.pop()
        yield field, found


def _kind(accessor: str) -> str:
    number = re.search(r"_tab\.Get\(flatbuffers\.number_types\.(\w+)Flags", accessor)
    table = re.search(r"obj = (\w+)\(\)", accessor)
    if "_tab.Union(" in accessor:
        kind = "union"
    elif table is not None:
        kind = f"table {table[1]}"
    else:
        kind = number[1].lower() if number is not None else "string"
    return f"vector {kind}" if "_tab.Vector(" in accessor else kind


def text_of(schema: dict[str, dict[str, dict[str, object]]]) -> str:
    """Return the file's text: a line per enum and per table."""
    parts = (
        f'"{part}": {{\n' + ",\n".join(f'"{name}": {json.dumps(each[name])}' for name in each)
        for part, each in schema.items()
    )
    return "{" + "\n},\n".join(parts) + "\n}}\n"


if __name__ == "__main__":
    SCHEMA.write_text(text_of(schema_of(Path(sys.argv[1]).read_text())))
