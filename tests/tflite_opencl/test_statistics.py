# SPDX-License-Identifier: Apache-2.0
"""What compilers tell, as Mesa 25.0 and NVIDIA's driver print it -> numbers."""

from __future__ import annotations

import pytest

from tflite_opencl.ir3 import hot_loop
from tflite_opencl.statistics import NONE, Statistics, statistics_of

BIFROST = """MESA: warning: something else
SHADER-DB: MESA_SHADER_KERNEL shader: 2898 inst, 2103 tuples, 482 clauses, 329.000000 cycles, \
82.833336 arith, 0.000000 texture, 0.000000 vary, 329.000000 ldst, 1890 quadwords, 1 threads, \
0 preloads, 6 loops, 26:191 spills:fills
"""
VALHALL = """SHADER-DB: MESA_SHADER_KERNEL shader: 3011 inst, 329.000000 cycles, 3.062500 fma, \
28.546875 cvt, 41.187500 sfu, 0.000000 v, 0.000000 t, 329.000000 ls, 1512 quadwords, 2 threads, \
6 loops, 0:0 spills:fills
"""
V3D = """Unknown DRM_IOCTL_V3D_GET_PARAM 11
SHADER-DB-(null) - MESA_SHADER_COMPUTE shader: 4416 inst, 2 threads, 6 loops, 1330 uniforms, \
130 max-temps, 186:264 spills:fills, 1 sfu-stalls, 4417 inst-and-stalls, 412 nops
"""
# A loop of two products within a loop of one, and a loop without any.
IR3 = """MESA: info: NIR (final form) for CL shader (null):
MESA: info:     con block b0:         // preds:
MESA: info: Native code for unnamed CL shader main with sha1 1234:
MESA: info: mov.u32u32 r1.x, r48.y
MESA: info: l1:
MESA: info: mul.f r9.x, r1.x, r2.x
MESA: info: stp.u32 p[r8.x], r1.x, 4
MESA: info: l3:
MESA: info: (nop3) cmps.s.ge p0.y, r4.z, r5.x
MESA: info: (rpt2)nop
MESA: info: br p0.y, #l12
MESA: info: (sy)ldg.u32 r5.y, g[r1.z], 4
MESA: info: (ss)(rpt1)mad.f32 r3.x, (r)r1.x, r2.x, (r)r3.x
MESA: info: ldp.u32 r13.w, p[r8.y+128], 4
MESA: info: mad.f32 r3.z, r1.x, r2.x, r3.z
MESA: info: jump #l3
MESA: info: l12:
MESA: info: jump #l1
MESA: info: end
MESA: info: ; CL: outputs:
MESA: info: ; CL prog 1/1: 2394 instr, 385 nops, 2009 non-nops, 81 mov, 196 cov, 4800 dwords
MESA: info: ; CL prog 1/1: 0 last-baryf, 0 last-helper, 0 half, 43 full, 32 constlen
"""
PTXAS = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'conv_2d_quant8' for 'sm_90'
ptxas info    : Function properties for conv_2d_quant8
    8 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 40 registers, used 0 barriers, 380 bytes cmem[0]
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (BIFROST, Statistics(None, 2898, 26, 191, 1, 329.0, 82.833336, 329.0, None)),
        (VALHALL, Statistics(None, 3011, 0, 0, 2, 329.0, 41.1875, 329.0, None)),
        (V3D, Statistics(None, 4416, 186, 264, 2, None, None, None, None)),
        (IR3, Statistics(43, 2394, 1, 1, None, None, None, None, 2.67)),
        (PTXAS, Statistics(40, None, 16, 24, None, None, None, None, None)),
        ("warning: unused variable 'spills'\n", NONE),
        ("", NONE),
    ],
)
def test_what_is_told(text: str, expected: Statistics) -> None:
    assert statistics_of(text) == expected


def test_the_last_kernel_counts() -> None:
    # A driver may build kernels of its own first.
    assert statistics_of(BIFROST.replace("2898", "12") + BIFROST).instructions == 2898
    assert statistics_of(V3D.replace("4416", "12") + V3D).instructions == 4416


def test_a_loop_without_products_tells_nothing() -> None:
    assert hot_loop(IR3.replace("mad.f32", "add.f").replace("mul.f", "add.f")) is None
    assert hot_loop("l1:\nmad.f32 r3.z, r1.x, r2.x, r3.z\nend\n") is None
