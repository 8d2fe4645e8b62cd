// SPDX-License-Identifier: Apache-2.0
// Macros: for the dot products one of those that dot.clh names.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"

// answers[m][n] = sum over k of a[m][k] * b[n][k], 16 x 8 of 32 terms, by the instructions named:
// does the compiler know them, the device run them, and are they what the kernels take them for?
// Each is a kernel of its own, built and run in a child process.

#include "runtime_isa_cpus.clh"
#include "runtime_isa_ieee.clh"

#if USES_RUNTIME_ISA_VNNI
TILE(runtime_isa_vnni) {
  LOCAL(rows)((global const int*)(constants + A), (global const int*)(constants + B),
              (global int*)(arena + ANSWERS));
}
KERNEL(runtime_isa_vnni)
#endif

#if USES_RUNTIME_ISA_AMX
TILE(runtime_isa_amx) {
  LOCAL(rows)((const uchar*)(uintptr_t)(constants + A), (const char*)(uintptr_t)(constants + B),
              (int*)(uintptr_t)(arena + ANSWERS));
}
KERNEL(runtime_isa_amx)
#endif

#if USES_RUNTIME_ISA_AVX2
TILE(runtime_isa_avx2) {
  LOCAL(rows)(constants + A, (global const char*)(constants + B), (global int*)(arena + ANSWERS));
}
KERNEL(runtime_isa_avx2)
#endif

#if USES_RUNTIME_ISA_DOTPROD
TILE(runtime_isa_dotprod) {
  LOCAL(rows)((global const int4*)(constants + A), (global const int*)(constants + B),
              (global int4*)(arena + ANSWERS));
}
KERNEL(runtime_isa_dotprod)
#endif

#if USES_RUNTIME_ISA_I8MM
TILE(runtime_isa_i8mm) {
  LOCAL(rows)((global const int2*)(constants + A), (global const int2*)(constants + B),
              (global int2*)(arena + ANSWERS));
}
KERNEL(runtime_isa_i8mm)
#endif

#if USES_RUNTIME_ISA_DP4A
TILE(runtime_isa_dp4a) {
  global const int* a = (global const int*)(constants + A);
  global const int* b = (global const int*)(constants + B);
  for (int i = get_local_id(0); i < 128; i += get_local_size(0)) {
    int sum = 0;
    for (int k = 0; k < 8; k++)
      asm volatile("dp4a.u32.s32 %0, %1, %2, %0;"
                   : "+r"(sum)
                   : "r"(a[i / 8 * 8 + k]), "r"(b[i % 8 * 8 + k]));
    ((global int*)(arena + ANSWERS))[i] = sum;
  }
}
KERNEL(runtime_isa_dp4a)
#endif

#if USES_RUNTIME_ISA_MMA
TILE(runtime_isa_mma) {
  // Fragments of m16n8k32, row by column: PTX ISA, "Matrix Fragments for mma.m16n8k32".
  int item = get_local_id(0);
  int row = item / 4;
  int column = item % 4;
  global const int* a = (global const int*)(constants + A);
  global const int* b = (global const int*)(constants + B);
  int a0 = a[row * 8 + column];
  int a1 = a[(row + 8) * 8 + column];
  int a2 = a[row * 8 + column + 4];
  int a3 = a[(row + 8) * 8 + column + 4];
  int b1 = b[row * 8 + column + 4];
  // With it come what another lane has, sums of bytes, and floats so small that they are integers.
  int b0 = b[(row ^ 1) * 8 + column];
  asm volatile("shfl.sync.idx.b32 %0, %0, %1, 31, 0xffffffff;" : "+r"(b0) : "r"(item ^ 4));
  int bytes = 0;
  asm volatile("dp4a.u32.u32 %0, %1, %2, %0;" : "+r"(bytes) : "r"(a0), "r"(0x01010101));
  for (int i = 0; i < 32; i += 8) bytes -= a0 >> i & 255;
  float half_way = (float)item + 0.5f;
  int are_wrong = bytes | (as_int(half_way * 0x1p-149f) - convert_int(rint(half_way))) |
                  (as_int(half_way * -0x1p-149f) >= 0);
  int c0 = 0, c1 = 0, c2 = 0, c3 = 0;
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(c0), "+r"(c1), "+r"(c2), "+r"(c3)
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  global int* answer = (global int*)(arena + ANSWERS) + row * 8 + column * 2;
  answer[0] = c0 ^ are_wrong;
  answer[1] = c1;
  answer[64] = c2;
  answer[65] = c3;
}
KERNEL(runtime_isa_mma)
#endif

#if USES_RUNTIME_ISA_DOT
#include "dot.clh"
// Where DOT_IS_SIGNED, `a` is taken as int8, and the host knows.
TILE(runtime_isa_dot) {
  global const uint* a = (global const uint*)(constants + A);
  global const uint* b = (global const uint*)(constants + B);
  for (int i = get_local_id(0); i < 128; i += get_local_size(0)) {
    int sum = 0;
    for (int k = 0; k < 8; k++) sum = DOT4(a[i / 8 * 8 + k], b[i % 8 * 8 + k], sum);
    ((global int*)(arena + ANSWERS))[i] = sum;
  }
}
KERNEL(runtime_isa_dot)
#endif

#if USES_RUNTIME_ISA_NEAREST
// answers[i] = the bits of x * y + z, each rounded to the nearest float, ties to even; then whole
// numbers by rint. Embedded profiles may round toward zero.
TILE(runtime_isa_nearest) {
  global const float* x = (global const float*)(constants + A);
  global const float* y = (global const float*)(constants + B);
  for (int i = get_local_id(0); i < 64; i += get_local_size(0)) {
    float product = x[i] * y[i];
    float sum = product + y[63 - i];
    ((global int*)(arena + ANSWERS))[i] = as_int(sum);
    ((global int*)(arena + ANSWERS))[i + 64] = convert_int(rint(sum * 0.5f));
  }
}
KERNEL(runtime_isa_nearest)
#endif

#if USES_RUNTIME_ISA_STORED_HALVES
// answers[i] = the bits of the half nearest to x, then to y, as a float. The halves lie where
// answers will.
TILE(runtime_isa_stored_halves) {
  global const float* x = (global const float*)(constants + A);
  global const float* y = (global const float*)(constants + B);
  global int* answers = (global int*)(arena + ANSWERS);
  for (int i = get_local_id(0); i < 32; i += get_local_size(0)) {
    global half* of_x = (global half*)(answers + 2 * i);
    global half* of_y = (global half*)(answers + 64 + 2 * i);
    vstore_half2(vload2(i, x), 0, of_x);
    vstore_half(y[2 * i], 0, of_y);
    vstore_half(y[2 * i + 1], 1, of_y);
    float2 back_x = (float2)(vload_half(0, of_x), vload_half(1, of_x));
    float2 back_y = vload_half2(0, of_y);
    vstore2(as_int2(back_x), i, answers);
    vstore2(as_int2(back_y), i, answers + 64);
  }
}
KERNEL(runtime_isa_stored_halves)
#endif

#if USES_RUNTIME_ISA_FP16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
// answers[i] = a * b + a of halves, then its opposite, by vectors as convolutions have.
TILE(runtime_isa_fp16) {
  global const half4* a = (global const half4*)(constants + A);
  global const half4* b = (global const half4*)(constants + B);
  for (int i = get_local_id(0); i < 16; i += get_local_size(0)) {
    half4 sum = a[i] * b[i] + a[i];
    vstore4(convert_int4(convert_float4(sum)), i, (global int*)(arena + ANSWERS));
    vstore4(convert_int4(convert_float4(-sum)), 16 + i, (global int*)(arena + ANSWERS));
  }
}
KERNEL(runtime_isa_fp16)
#endif

#if USES_RUNTIME_ISA_LANES16
// The same sums by vectors of 16, which pass through built-in functions, as the portable kernels'
// do: a compiler that takes a CPU for one with shorter vectors may lose such a kernel, or itself.
TILE(runtime_isa_lanes16) {
  global const uchar* a = constants + A;
  global const char* b = (global const char*)(constants + B);
  for (int m = get_local_id(0); m < 16; m += get_local_size(0)) {
    for (int n = 0; n < 8; n++) {
      int16 sum = 0;
      for (int k = 0; k < 32; k += 16)
        sum +=
            convert_int16(vload16(0, a + m * 32 + k)) * convert_int16(vload16(0, b + n * 32 + k));
      int16 low = -0x40000000;
      int16 high = 0x40000000;
      sum = clamp(sum + mul_hi(sum, low) - mul_hi(sum, low), low, high);
      int8 eight = sum.lo + sum.hi;
      int4 four = eight.lo + eight.hi;
      ((global int*)(arena + ANSWERS))[m * 8 + n] = four.x + four.y + four.z + four.w;
    }
  }
}
KERNEL(runtime_isa_lanes16)
#endif

#if USES_RUNTIME_ISA_ORDER
// What one group writes must reach the others between two launches of the persistent kernel: each
// of 64 tiles of 16 values mixes three that other tiles and items of the launch before wrote.
// tile: 16 values
TILE(runtime_isa_order) {
  global const int* from = (global const int*)(arena + FROM);
  for (int i = get_local_id(0); i < 16; i += get_local_size(0)) {
    int other = (tile * 7 + 1) % 64 * 16 + (i * 5 + 3) % 16;
    int far = (tile + 32) % 64 * 16 + 15 - i;
    ((global int*)(arena + TO))[tile * 16 + i] =
        from[tile * 16 + i] * 3 + from[other] * 5 + from[far] + tile;
  }
}
KERNEL(runtime_isa_order)
#endif

#if USES_RUNTIME_ISA_PARAMS_ARGUMENT
// answers[row][i] = VALUE_i ^ row, for 4 rows of 32: the block of params as an argument, of which
// every field reaches the kernel and the functions that it calls.
#define EACH_OF_8(M, a, b, c, d, e, f, g, h) M(a) M(b) M(c) M(d) M(e) M(f) M(g) M(h)
#define EACH_VALUE(M)                          \
  EACH_OF_8(M, 0, 1, 2, 3, 4, 5, 6, 7)         \
  EACH_OF_8(M, 8, 9, 10, 11, 12, 13, 14, 15)   \
  EACH_OF_8(M, 16, 17, 18, 19, 20, 21, 22, 23) \
  EACH_OF_8(M, 24, 25, 26, 27, 28, 29, 30, 31)

static void LOCAL(write_values)(global uchar* arena, PARAMS params, int row) {
  global int* answer = (global int*)(arena + ANSWERS) + row * 32;
#define WRITE(i) answer[i] = VALUE_##i ^ row;
  EACH_VALUE(WRITE)
}

TILE(runtime_isa_params_argument) {
  for (int i = get_local_id(0); i < 4; i += get_local_size(0))
    LOCAL(write_values)(arena, params, i);
}
KERNEL(runtime_isa_params_argument)
#endif

#if USES_RUNTIME_ISA_OWN_BUILTINS
// An error where the compiler read a header all the same: it declares an int.
#ifdef OWN_BUILTINS
char __attribute__((overloadable)) ilogb(float);
#endif

// A row a built-in function, on 8 pairs of numbers.
TILE(runtime_isa_own_builtins) {
  global int* answers = (global int*)(arena + ANSWERS);
  for (int n = get_local_id(0); n < 8; n += get_local_size(0)) {
    const int x = ((global const int*)(constants + A))[n];
    const int y = ((global const int*)(constants + B))[n];
    const float fraction = (x >> 8) / 256.0f, second = (y >> 8) / 256.0f;
    const int small = x >> 20, other = y >> 20;
    uchar bytes[4];
    vstore4(vload4(n, constants + A + 1), 0, bytes);
    const int4 places = convert_int4(vload4(0, bytes)) * (int4)(1, 2, 3, 4);
    const int results[16] = {
        min(x, y),
        max(x, y),
        clamp(x, -1000, 1000),
        clz(x),
        mul_hi(x, y),
        mad24(small, other, x),
        (int)abs(x),
        convert_int(rint(fraction)),
        convert_int(round(fraction)),
        convert_int(floor(fraction)),
        convert_int(ceil(fraction)),
        convert_int(sqrt((float)(small * small))),
        as_int(copysign(fabs(fraction), -1.0f)),
        as_int(fmin(fraction, second) - fmax(fraction, second)),
        convert_int(fma((float)small, (float)other, 7.0f) + mad((float)small, (float)other, 7.0f)),
        places.x + places.y + places.z + places.w,
    };
    for (int m = 0; m < 16; m++) answers[m * 8 + n] = results[m] - 3;
  }
  mem_fence(CLK_GLOBAL_MEM_FENCE);
  barrier(CLK_GLOBAL_MEM_FENCE);
  for (int n = get_local_id(0); n < 128; n += get_local_size(0)) {
    atomic_inc(answers + n);
    int before = atomic_add(answers + n, 1);
    atomic_cmpxchg(answers + n, before + 1, before + 2);
  }
}
KERNEL(runtime_isa_own_builtins)
#endif
