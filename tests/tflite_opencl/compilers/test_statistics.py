# SPDX-License-Identifier: Apache-2.0
"""Parsers of compiler statistics, as Mesa 25.0 and NVIDIA's driver print them."""

from __future__ import annotations

import pytest

from tflite_opencl.compilers.statistics import Listing, statistics_of

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
# A loop with two products inside a loop with one, and a loop without any.
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
# The compiler's IR comes first; then a loop with two products and a load in another loop.
BIFROST_CODE = """block0 {
    *FMA.f32 r0:t0, r1, r2, r3
    +NOP t1
}

clause_0:
ds(0) nbb ncph
{
    *MOV.i32 t0, u0.w0
    +LOAD.i32 t1, r4, r5, @r6
}

clause_3:
ds(0) nbb ncph
{
    *FMA.f32 r0:t0, r1, r2, r3
    +FADD.f32 t1, t0, r2
    *FMA.f32 r0:t0, r1, r2, r3
    +LOAD.i32 t1, r4, r5, @r6
    *IMUL.i32 t0, r1, r2
    +JUMP t1, clause_3
}

clause_7:
ds(0) nbb ncph
{
    *NOP t0
    +JUMP t1, clause_0
}

"""
VALHALL_CODE = """block0 {
   FMA.f32 r0, r1, r2, r3
} -> block1

   MOV.i32 r0, 0x1F1E1D1C
   FMA.f32 r1, ^r57, u8, r1
   FADD.f32.reconverge r2, u7, r1
   IMUL.i32 r3, r1, r2
   LOAD.i32.unsigned.slot0 @r3, r1, offset:64
   LSHIFT_OR.i32 r4, r3, r2, 0x0
   BRANCHZ.eq.reconverge 0x0, offset:-6
   STORE.i32.slot2 @r16, ^r18, offset:-8
   NOP.end

"""
V3D_CODE = """MESA_SHADER_COMPUTE prog 0/1 QPU:
0x3c403186bb800000 fmul r0, r1, r2               ; nop
MESA_SHADER_COMPUTE prog 0/2 QPU:
0x3c403186bb800000 nop                           ; nop                         ; ldunif (push[3])
0x3de021867c83d002 fadd rf6, r5, r4              ; fmul rf7, rf8, rf9
0x3d822187b582e000 and rf7, rf0, r5              ; fmul r0, r1, r2
0x02fffbaeff20d000 bu.anyap  -48, r:unif (0xffffffbc / -nan)
0x3c003186bb800000 nop                           ; nop
0x3c003186bb800000 nop                           ; nop
0x3c003186bb800000 nop                           ; mov r3, r4
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
        (
            BIFROST,
            {"instructions": 2898, "spills": 26, "fills": 191, "threads": 1, "cycles": 329.0,
             "arithmetic_cycles": 82.833336, "memory_cycles": 329.0},
        ),
        (
            VALHALL,
            {"instructions": 3011, "spills": 0, "fills": 0, "threads": 2, "cycles": 329.0,
             "arithmetic_cycles": 41.1875, "memory_cycles": 329.0},
        ),
        (V3D, {"instructions": 4416, "spills": 186, "fills": 264, "threads": 2}),
        (
            IR3,
            {"registers": 43, "instructions": 2394, "spills": 1, "fills": 1,
             "loop_instructions": 2.67},
        ),
        (PTXAS, {"registers": 40, "spills": 16, "fills": 24}),
        ("warning: unused variable 'spills'\n", {}),
        ("", {}),
    ],
)  # fmt: skip
def test_statistics(text: str, expected: dict[str, float]) -> None:
    assert statistics_of(text)[0] == expected


def test_last_kernel_counts() -> None:
    # A driver may build internal kernels first.
    for text, number in ((BIFROST, "2898"), (V3D, "4416")):
        statistics, _ = statistics_of(text.replace(number, "12") + text)
        assert statistics["instructions"] == int(number)


def test_loop_without_products_is_ignored() -> None:
    statistics, listing = statistics_of(IR3.replace("mad.f32", "add.f").replace("mul.f", "add.f"))
    assert "loop_instructions" not in statistics
    assert listing is not None
    assert (listing.products, listing.loop) == (0, {})
    assert sum(listing.once.values()) == 16


def test_preamble_runs_once_for_all_items() -> None:
    preamble = "MESA: info: shps #l1\nMESA: info: mul.f r1.x, r2.x, r3.x\nMESA: info: shpe\n"
    body = IR3.replace("MESA: info: l1:", preamble + "MESA: info: l1:")
    assert statistics_of(body) == statistics_of(IR3)


@pytest.mark.parametrize(
    ("text", "listing"),
    [
        (IR3, Listing({"float": 2, "integer": 3}, {"integer": 5, "wait": 3, "float": 3}, 3, 8)),
        (
            BIFROST_CODE + BIFROST,
            Listing({"memory": 1, "arithmetic": 1}, {"arithmetic": 2, "memory": 1}, 2, 3),
        ),
        (
            VALHALL_CODE + VALHALL,
            Listing(
                {"converter": 1, "memory": 1},
                {"multiplier": 2, "special": 2, "memory": 1, "converter": 1},
                products=1,
                lines=6,
            ),
        ),
        (V3D_CODE + V3D, Listing({"instruction": 4}, {"instruction": 3}, products=2, lines=3)),
    ],
)
def test_instructions_are_counted_by_unit(text: str, listing: Listing) -> None:
    statistics, result = statistics_of(text)
    assert result == listing
    assert statistics["loop_instructions"] == round(listing.lines / listing.products, 2)
