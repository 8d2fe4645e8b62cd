// SPDX-License-Identifier: Apache-2.0
// Macros: INDEX, uchar or ushort, as wide as the input's elements; ELEM, a type as wide as the
// output's.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"

#if USES_LOOKUP
// output[i] = table[input[i]]: a value of 8 or 16 bits has few answers, and the host knows them all
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(lookup) {
  TILE_RANGE(ELEMENTS);
  global const INDEX* input = (global const INDEX*)(arena + INPUT) + start;
  global const ELEM* table = (global const ELEM*)(constants + TABLE);
  global ELEM* output = (global ELEM*)(arena + OUTPUT) + start;
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) output[i] = table[input[i]];
}

KERNEL(lookup)
#endif

#if USES_LOOKUP_VECTOR
#define INDICES JOIN(INDEX, 4)
#define ELEMS JOIN(ELEM, 4)

// The same for four neighbours, which lie at a multiple of four elements: one load, one store. The
// last four may reach past the end, where nothing is written.
// tile: TILE_ITEMS fours, one a work-item; tiles: ceil(elements / 4 / TILE_ITEMS)
TILE(lookup_vector) {
  const int elements = ELEMENTS;
  const int start = tile * TILE_ITEMS;
  const int end = min(start + TILE_ITEMS, (elements + 3) / 4);
  global const INDICES* input = (global const INDICES*)(arena + INPUT);
  global const ELEM* table = (global const ELEM*)(constants + TABLE);
  global ELEM* output = (global ELEM*)(arena + OUTPUT);
  global ELEMS* fours = (global ELEMS*)(arena + OUTPUT);
  const int whole = min(end, elements / 4);
  for (int i = start + get_local_id(0); i < whole; i += get_local_size(0)) {
    INDICES at = input[i];
    ELEMS found = {table[at.x], table[at.y], table[at.z], table[at.w]};
    fours[i] = found;
  }
  if (whole < end) {
    for (int i = whole * 4 + get_local_id(0); i < elements; i += get_local_size(0)) {
      global const INDEX* one = (global const INDEX*)(arena + INPUT);
      output[i] = table[one[i]];
    }
  }
}

KERNEL(lookup_vector)
#endif

#if USES_LOOKUP_ROW
// output[i] = table[i % TABLES][input[i]]: each channel, of the innermost dimension, has a table
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(lookup_row) {
  TILE_RANGE(ELEMENTS);
  global const uchar* input = (global const uchar*)(arena + INPUT) + start;
  global const uchar* table = constants + TABLE;
  global uchar* output = (global uchar*)(arena + OUTPUT) + start;
  for (int i = get_local_id(0); i < count; i += get_local_size(0))
    output[i] = table[(start + i) % TABLES * 256 + input[i]];
}

KERNEL(lookup_row)
#endif

#if USES_LOOKUP_COLUMNS
// The same for four neighbours, one load and one store. A row has as many channels as make fours,
// several pixels' if need be; the last four of all may be fewer.
// tile: TILE_ROWS rows of TILE_COLUMNS fours, whose tables stay in a near cache, one a work-item;
// tiles: ceil(columns / TILE_COLUMNS) * ROW_TILES
TILE(lookup_columns) {
  const int columns = COLUMNS;
  const int first_column = tile / ROW_TILES * TILE_COLUMNS;
  const int width = min(TILE_COLUMNS, columns - first_column);
  const int first_row = tile % ROW_TILES * TILE_ROWS;
  const int rows = min(TILE_ROWS, ROWS - first_row);
  global const uchar* table = constants + TABLE + first_column * 1024;
  // The work-items, side by side along a row, and as many rows as there are work-items for.
  const int across = min(width, (int)get_local_size(0));
  const int down = (int)get_local_size(0) / across;
  const int own_column = (int)get_local_id(0) % across;
  const int own_row = (int)get_local_id(0) / across;
  for (int row = own_row; row < rows && own_row < down; row += down) {
    const int start = ((first_row + row) * columns + first_column) * 4;
    const int left = ELEMENTS - start;
    global const uint* input = (global const uint*)(arena + INPUT + start);
    global uint* output = (global uint*)(arena + OUTPUT + start);
    const int whole = left < width * 4 ? left / 4 : width;
    for (int column = own_column; column < whole; column += across) {
      global const uchar* own = table + column * 1024;
      const uint in = input[column];
      output[column] = (uint)own[in & 255u] | (uint)own[256u + (in >> 8 & 255u)] << 8 |
                       (uint)own[512u + (in >> 16 & 255u)] << 16 |
                       (uint)own[768u + (in >> 24)] << 24;
    }
    if (whole < width && own_column == 0) {
      for (int k = whole * 4; k < left; k++)
        ((global uchar*)output)[k] = table[k * 256 + ((global const uchar*)input)[k]];
    }
  }
}

KERNEL(lookup_columns)
#endif

#if USES_LOOKUP_VNNI || USES_LOOKUP_AVX2
// By vectors of x86, for tables of 256 bytes: a byte's low half chooses among sixteen answers, in
// each of sixteen vectors, and its high half says which of the vectors is right.
#if USES_LOOKUP_VNNI
#define X86_LANES 16
#else
#define X86_LANES 8
#endif
#include "x86.clh"
#define VECTOR_BYTES (4 * X86_LANES)

// `table`: a vector for each high half, which has its sixteen answers again and again.
OUTLINE void LOCAL(look_up)(const uchar* input, const uchar* table, uchar* output, int count) {
  const CHARS halves = (CHARS)LOCAL(spread)(0x0f0f0f0f);
  CHARS answers[16];
  UNROLLED (part, 16) answers[part] = ((const CHARS*)table)[part];
  int i = 0;
  for (; i + VECTOR_BYTES <= count; i += VECTOR_BYTES) {
    CHARS bytes = (CHARS)(*(const NEAR_INTS*)(input + i));
    CHARS low = bytes & halves;
    CHARS high = bytes & ~halves;
    CHARS found = (CHARS)LOCAL(spread)(0);
    UNROLLED (part, 16)
      found |= (CHARS)X86(pshufb)(answers[part], low) &
               (high == (CHARS)LOCAL(spread)(part * 0x10101010));
    *(NEAR_INTS*)(output + i) = (INTS)found;
  }
  for (; i < count; i++) output[i] = table[(input[i] >> 4) * VECTOR_BYTES + (input[i] & 15)];
}

#define LOOK_UP()                                                   \
  const int start = tile * TILE_ITEMS;                              \
  LOCAL(look_up)(PLAIN_POINTER(const uchar, arena + INPUT) + start, \
                 PLAIN_POINTER(const uchar, constants + TABLE),     \
                 PLAIN_POINTER(uchar, arena + OUTPUT) + start,      \
                 ELEMENTS - start < TILE_ITEMS ? ELEMENTS - start : TILE_ITEMS)
#endif

#if USES_LOOKUP_VNNI
// The same by AVX-512, and by AVX2.
// tile: TILE_ITEMS elements; tiles: ceil(elements / TILE_ITEMS)
TILE(lookup_vnni) { LOOK_UP(); }

KERNEL(lookup_vnni)
#endif

#if USES_LOOKUP_AVX2
// tile: TILE_ITEMS elements; tiles: ceil(elements / TILE_ITEMS)
TILE(lookup_avx2) { LOOK_UP(); }

KERNEL(lookup_avx2)
#endif
