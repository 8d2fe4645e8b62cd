# SPDX-License-Identifier: Apache-2.0
"""Ops that only move values: views, slices, pads, gathers, blocks, of every type."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from delegate import Graph, Node, Tensor
from delegate_test.build import Case, dtype_of, graph, node, numbers, same, sizes, tensor

_ALL = ("uint8", "int8", "16x8", "float32", "int32", "int64", "bool")
_NO_16 = ("uint8", "int8", "float32", "int32", "int64")


def cases() -> Iterator[Case]:
    """Yield this family's cases."""
    for kind in _ALL:
        dtype = dtype_of(kind)
        for build in _FAMILIES:
            for op, kinds, detail, make in build(dtype):
                if kind in kinds:
                    name = f"{op.lower()}/{kind}/{detail}"
                    yield Case(name, op, kind, partial(_graph, make))


_Found = Iterator[tuple[str, tuple[str, ...], str, Callable[[], Node]]]


def _graph(make: Callable[[], Node]) -> Graph:
    step = make()
    return graph([step], outputs=step.outputs)


def _rows(*rows: Any) -> tuple[Any, ...]:
    """Return a table whose rows have a type each."""
    return rows


def _step(
    op: str,
    inputs: Sequence[Tensor],
    out: Any,
    dtype: str,
    options: dict[str, Any] | None = None,
    version: int | None = None,
) -> Node:
    outputs = _outputs(out, dtype)
    if version is None:
        version = 1
    return node(op, inputs, outputs, options, version)


def _outputs(out: Any, dtype: str) -> list[Tensor]:
    return out if out and isinstance(out[0], Tensor) else [same(out, dtype)]


def _views(dtype: str) -> _Found:
    for shape, out in _rows(
        ((2, 3, 4), (24,)),
        ((1, 7, 5, 3), (1, 105)),
        ((1,), (1, 1, 1)),
        ((6, 4), (2, 3, -1)),
    ):
        full = tuple(np.zeros(shape).reshape(out).shape)
        yield (
            "RESHAPE",
            _ALL,
            f"in{sizes(shape)}-to{sizes(full)}" + "-computed" * (-1 in out),
            partial(
                _step,
                "RESHAPE",
                [same(shape, dtype), numbers(out)],
                full,
                dtype,
                {"new_shape": out},
            ),
        )
    for shape, dims in _rows(((1, 5, 1, 3), ()), ((1, 5, 1, 3), (0,)), ((2, 1, 3), (-2,))):
        drop = (
            {d % len(shape) for d in dims} if dims else {i for i, s in enumerate(shape) if s == 1}
        )
        out = tuple(s for i, s in enumerate(shape) if i not in drop)
        yield (
            "SQUEEZE",
            _ALL,
            f"in{sizes(shape)}-dims{'_'.join(map(str, dims)) or 'all'}",
            partial(_step, "SQUEEZE", [same(shape, dtype)], out, dtype, {"squeeze_dims": dims}),
        )
    for shape, axis in _rows(((5, 3), 0), ((5, 3), -1), ((2, 3, 4), 1)):
        out = tuple(np.expand_dims(np.zeros(shape), axis).shape)
        yield (
            "EXPAND_DIMS",
            _ALL,
            f"in{sizes(shape)}-axis{axis}",
            partial(_step, "EXPAND_DIMS", [same(shape, dtype), numbers(axis)], out, dtype),
        )


def _joins(dtype: str) -> _Found:
    for shapes, axis in _rows(
        (((1, 4, 4, 3), (1, 4, 4, 5)), 3),
        (((1, 4, 4, 3), (1, 4, 4, 5)), -1),
        (((1, 2, 5, 7), (1, 3, 5, 7), (1, 1, 5, 7)), 1),
        (((2, 3), (1, 3)), 0),
        (((5,), (8,), (1,), (3,)), 0),
        (((1, 6, 6, 16), (1, 6, 6, 16)), 3),
        (((2, 3, 1, 33), (2, 3, 4, 33)), 2),
    ):
        out = tuple(np.concatenate([np.zeros(s) for s in shapes], axis).shape)
        yield (
            "CONCATENATION",
            _ALL if dtype != "bool" else (),
            f"in{'_'.join(map(sizes, shapes))}-axis{axis}",
            partial(
                _step,
                "CONCATENATION",
                [same(s, dtype) for s in shapes],
                out,
                dtype,
                {"axis": axis, "fused_activation_function": "NONE"},
                {"int8": 2, "int16": 3}.get(dtype),
            ),
        )
    for shape, axis, count in _rows(((5, 3), 0, 2), ((2, 3, 4), -1, 3), ((1, 7, 5, 3), 1, 2)):
        out = tuple(np.stack([np.zeros(shape)] * count, axis).shape)
        yield (
            "PACK",
            ("uint8", "int8", "16x8", "float32", "int32", "int64"),
            f"in{sizes(shape)}-axis{axis}-of{count}",
            partial(
                _step,
                "PACK",
                [same(shape, dtype) for _ in range(count)],
                out,
                dtype,
                {"axis": axis, "values_count": count},
            ),
        )
        yield (
            "UNPACK",
            ("uint8", "int8", "16x8", "float32", "int32", "bool"),
            f"in{sizes(out)}-axis{axis}",
            partial(
                _step,
                "UNPACK",
                [same(out, dtype)],
                [same(shape, dtype) for _ in range(count)],
                dtype,
                {"axis": axis, "num": count},
            ),
        )
    for shape, axis, count in _rows(
        ((1, 4, 6, 8), 3, 2), ((1, 4, 6, 8), 1, 4), ((6, 5), 0, 3), ((2, 9), -1, 3)
    ):
        out = tuple(n // count if i == axis % len(shape) else n for i, n in enumerate(shape))
        yield (
            "SPLIT",
            ("uint8", "int8", "16x8", "float32", "int32"),
            f"in{sizes(shape)}-axis{axis}-of{count}",
            partial(
                _step,
                "SPLIT",
                [numbers(axis), same(shape, dtype)],
                [same(out, dtype) for _ in range(count)],
                dtype,
                {"num_splits": count},
            ),
        )
    for shape, axis, parts in _rows(
        ((1, 4, 6, 9), 3, (2, 7)), ((7, 5), 0, (1, 2, 4)), ((2, 3, 8), -1, (3, -1))
    ):
        whole = shape[axis]
        given = tuple(whole - sum(p for p in parts if p > 0) if p < 0 else p for p in parts)
        outs = [
            tuple(p if i == axis % len(shape) else n for i, n in enumerate(shape)) for p in given
        ]
        yield (
            "SPLIT_V",
            ("uint8", "int8", "16x8", "float32", "int32", "int64"),
            f"in{sizes(shape)}-axis{axis}-of{'_'.join(map(str, parts))}",
            partial(
                _step,
                "SPLIT_V",
                [same(shape, dtype), numbers(parts), numbers(axis)],
                [same(out, dtype) for out in outs],
                dtype,
                {"num_splits": len(parts)},
            ),
        )


def _slices(dtype: str) -> _Found:
    for shape, begin, size in _rows(
        ((1, 7, 5, 3), (0, 2, 1, 0), (1, 3, 4, 3)),
        ((1, 7, 5, 8), (0, 0, 0, 3), (1, 7, 5, -1)),
        ((9,), (4,), (5,)),
        ((4, 5, 6), (1, 0, 2), (2, -1, 3)),
    ):
        out = tuple(n - b if s < 0 else s for n, b, s in zip(shape, begin, size, strict=True))
        yield (
            "SLICE",
            _ALL,
            f"in{sizes(shape)}-from{'_'.join(map(str, begin))}-to{sizes(out)}",
            partial(
                _step, "SLICE", [same(shape, dtype), numbers(begin), numbers(size)], out, dtype
            ),
        )
    strided = _rows(
        ((1, 7, 5, 3), (0, 1, 0, 0), (1, 6, 5, 3), (1, 2, 1, 1), {}),
        ((1, 7, 5, 3), (0, -1, 4, 0), (1, -8, 0, 3), (1, -2, -1, 1), {}),
        ((4, 9), (0, 0), (0, 0), (1, 3), {"begin_mask": 3, "end_mask": 3}),
        ((4, 9), (2, 1), (3, 8), (1, 2), {"shrink_axis_mask": 1}),
        ((2, 3, 8), (0, 0, 1), (2, 3, 8), (1, 1, 7), {"begin_mask": 1}),
    )
    for shape, begin, end, steps, masks in strided:
        index = []
        for axis in range(len(shape)):
            bit = 1 << axis
            if masks.get("shrink_axis_mask", 0) & bit:
                index.append(begin[axis])
                continue
            first = None if masks.get("begin_mask", 0) & bit else begin[axis]
            last = None if masks.get("end_mask", 0) & bit else end[axis]
            index.append(slice(first, last, steps[axis]))
        out = tuple(np.zeros(shape)[tuple(index)].shape)
        said = "-".join(f"{name}{value}" for name, value in masks.items())
        yield (
            "STRIDED_SLICE",
            _ALL,
            f"in{sizes(shape)}-from{'_'.join(map(str, begin))}-steps{'_'.join(map(str, steps))}"
            + (f"-{said}" if said else ""),
            partial(
                _step,
                "STRIDED_SLICE",
                [same(shape, dtype), *map(numbers, (begin, end, steps))],
                out,
                dtype,
                dict(masks),
                {"int8": 2, "bool": 3, "int16": 4}.get(dtype),
            ),
        )


def _pads(dtype: str) -> _Found:
    for shape, pads in _rows(
        ((1, 5, 4, 3), ((0, 0), (1, 1), (1, 1), (0, 0))),
        ((1, 5, 4, 3), ((0, 0), (0, 1), (2, 0), (0, 0))),
        ((1, 5, 4, 3), ((0, 0), (0, 0), (0, 0), (1, 2))),
        ((2, 3, 4, 17), ((1, 0), (0, 2), (3, 1), (0, 0))),
        ((6, 5), ((1, 2), (0, 3))),
    ):
        out = tuple(n + a + b for n, (a, b) in zip(shape, pads, strict=True))
        detail = f"in{sizes(shape)}-by{'_'.join(f'{a}{b}' for a, b in pads)}"
        kinds = ("uint8", "int8", "16x8", "float32", "int32", "int64")
        yield (
            "PAD",
            kinds,
            detail,
            partial(
                _step,
                "PAD",
                [same(shape, dtype), numbers(pads)],
                out,
                dtype,
                None,
                {"int8": 2, "int16": 2}.get(dtype),
            ),
        )
        yield (
            "PADV2",
            kinds[:2] + kinds[3:],
            detail,
            partial(
                _step,
                "PADV2",
                [
                    same(shape, dtype),
                    numbers(pads),
                    same((), dtype, data=np.array(7).astype(dtype)),
                ],
                out,
                dtype,
                None,
                {"int8": 2}.get(dtype),
            ),
        )
        if all(max(pair) < n for n, pair in zip(shape, pads, strict=True)):
            for mode in ("REFLECT", "SYMMETRIC"):
                yield (
                    "MIRROR_PAD",
                    ("uint8", "int8", "float32", "int32", "int64"),
                    f"{detail}-{mode.lower()}",
                    partial(
                        _step,
                        "MIRROR_PAD",
                        [same(shape, dtype), numbers(pads)],
                        out,
                        dtype,
                        {"mode": mode},
                    ),
                )


def _orders(dtype: str) -> _Found:
    for shape, order in _rows(
        ((1, 5, 4, 3), (0, 3, 1, 2)),
        ((1, 5, 4, 3), (0, 2, 3, 1)),
        ((7, 5), (1, 0)),
        ((2, 3, 4), (2, 0, 1)),
        ((2, 3, 4, 5, 6), (4, 2, 0, 1, 3)),
        ((1, 8, 8, 16), (0, 3, 1, 2)),
    ):
        out = tuple(shape[axis] for axis in order)
        yield (
            "TRANSPOSE",
            _ALL,
            f"in{sizes(shape)}-order{'_'.join(map(str, order))}",
            partial(
                _step,
                "TRANSPOSE",
                [same(shape, dtype), numbers(order)],
                out,
                dtype,
                None,
                {"int8": 2}.get(dtype),
            ),
        )
    for shape, axes in _rows(
        ((1, 5, 4, 3), (1,)),
        ((2, 7), (0,)),
        ((6, 5, 4), (2,)),
        ((2, 3, 4), (0, 1)),
    ):
        yield (
            "REVERSE_V2",
            ("uint8", "int8", "16x8", "float32", "int32", "int64", "bool"),
            f"in{sizes(shape)}-axes{'_'.join(map(str, axes))}",
            partial(_step, "REVERSE_V2", [same(shape, dtype), numbers(axes)], shape, dtype),
        )
    for shape, times in _rows(((2, 3), (2, 3)), ((1, 4, 5, 3), (1, 2, 1, 2)), ((7,), (5,))):
        out = tuple(n * m for n, m in zip(shape, times, strict=True))
        yield (
            "TILE",
            ("uint8", "int8", "float32", "int32", "int64", "bool"),
            f"in{sizes(shape)}-times{sizes(times)}",
            partial(_step, "TILE", [same(shape, dtype), numbers(times)], out, dtype),
        )
    for shape, out in _rows(
        ((1, 1, 3), (4, 5, 3)),
        ((5,), (2, 5)),
        ((2, 1, 4), (2, 6, 4)),
        ((), (3, 2)),
    ):
        yield (
            "BROADCAST_TO",
            _ALL,
            f"in{sizes(shape)}-to{sizes(out)}",
            partial(
                _step,
                "BROADCAST_TO",
                [same(shape, dtype), numbers(out)],
                out,
                dtype,
                None,
                3 if dtype in ("int8", "uint8", "int16") else 2,
            ),
        )


def _gathers(dtype: str) -> _Found:
    for shape, axis, places in _rows(
        ((5, 7), 0, (4, 0, 0, 2)),
        ((1, 5, 4, 3), 2, (3, 1)),
        ((2, 3, 8), -1, ((0, 7), (1, 1))),
        ((9,), 0, 4),
    ):
        where = np.asarray(places)
        out = tuple(np.take(np.zeros(shape), where, axis).shape)
        yield (
            "GATHER",
            _ALL,
            f"in{sizes(shape)}-axis{axis}-at{sizes(where.shape)}",
            partial(
                _step,
                "GATHER",
                [same(shape, dtype), numbers(where)],
                out,
                dtype,
                {"axis": axis, "batch_dims": 0},
                {"int8": 2, "bool": 3, "int16": 4}.get(dtype),
            ),
        )
    points = _rows(
        ((4, 5), ((0, 0), (3, 4))),
        ((4, 5, 3), ((1,), (3,))),
        ((2, 6, 4), (((0, 1), (1, 5)),)),
    )
    for shape, at in points:
        where = np.asarray(at)
        out = (*where.shape[:-1], *shape[where.shape[-1] :])
        yield (
            "GATHER_ND",
            _ALL,
            f"in{sizes(shape)}-at{sizes(where.shape)}",
            partial(
                _step,
                "GATHER_ND",
                [same(shape, dtype), numbers(where)],
                out,
                dtype,
                None,
                {"int8": 2, "int16": 3, "bool": 5}.get(dtype),
            ),
        )
    for shape, depth, axis in _rows(((3,), 4, -1), ((2, 5), 3, 0), ((2, 3), 7, 1)):
        place = axis if axis >= 0 else len(shape)
        out = (*shape[:place], depth, *shape[place:])
        yield (
            "ONE_HOT",
            ("uint8", "int8", "float32", "int32", "int64", "bool"),
            f"in{sizes(shape)}-depth{depth}-axis{axis}",
            partial(
                _step,
                "ONE_HOT",
                [
                    tensor(shape, "int32", limits=(-1, depth)),
                    numbers(depth),
                    same((), dtype, data=np.array(9).astype(dtype)),
                    same((), dtype, data=np.array(0).astype(dtype)),
                ],
                out,
                dtype,
                {"axis": axis},
            ),
        )


def _fills(dtype: str) -> _Found:
    for shape in ((1,), (5, 7), (2, 3, 4, 5)):
        yield (
            "FILL",
            ("int8", "16x8", "float32", "int32", "int64", "bool"),
            f"to{sizes(shape)}",
            partial(_step, "FILL", [numbers(shape), same((), dtype)], shape, dtype),
        )


def _blocks(dtype: str) -> _Found:
    for shape, block in _rows(((1, 4, 6, 3), 2), ((2, 6, 3, 5), 3), ((1, 8, 8, 16), 4)):
        n, h, w, c = shape
        h, w = h * block // np.gcd(h, block), w * block // np.gcd(w, block)
        flat = (n, h // block, w // block, c * block * block)
        whole = (n, h, w, c)
        kinds = ("uint8", "int8", "float32", "int32", "int64")
        yield (
            "SPACE_TO_DEPTH",
            kinds,
            f"in{sizes(whole)}-block{block}",
            partial(
                _step,
                "SPACE_TO_DEPTH",
                [same(whole, dtype)],
                flat,
                dtype,
                {"block_size": int(block)},
            ),
        )
        yield (
            "DEPTH_TO_SPACE",
            kinds,
            f"in{sizes(flat)}-block{block}",
            partial(
                _step,
                "DEPTH_TO_SPACE",
                [same(flat, dtype)],
                whole,
                dtype,
                {"block_size": int(block)},
            ),
        )
    for shape, blocks, edges in _rows(
        ((1, 4, 6, 3), (2, 2), ((0, 0), (0, 0))),
        ((2, 5, 4, 8), (3, 2), ((1, 0), (1, 1))),
        ((1, 7, 7, 5), (4, 4), ((1, 0), (0, 1))),
    ):
        padded = [s + sum(e) for s, e in zip(shape[1:3], edges, strict=True)]
        count = shape[0] * blocks[0] * blocks[1]
        split = (count, padded[0] // blocks[0], padded[1] // blocks[1], shape[3])
        detail = f"block{sizes(blocks)}-edges{'_'.join(f'{a}{b}' for a, b in edges)}"
        kinds = ("uint8", "int8", "float32", "int32", "int64")
        yield (
            "SPACE_TO_BATCH_ND",
            kinds,
            f"in{sizes(shape)}-{detail}",
            partial(
                _step,
                "SPACE_TO_BATCH_ND",
                [same(shape, dtype), numbers(blocks), numbers(edges)],
                split,
                dtype,
                None,
                {"int8": 2}.get(dtype),
            ),
        )
        yield (
            "BATCH_TO_SPACE_ND",
            kinds,
            f"in{sizes(split)}-{detail}",
            partial(
                _step,
                "BATCH_TO_SPACE_ND",
                [same(split, dtype), numbers(blocks), numbers(edges)],
                shape,
                dtype,
                None,
                {"int8": 2}.get(dtype),
            ),
        )


_FAMILIES = (_views, _joins, _slices, _pads, _orders, _gathers, _fills, _blocks)
