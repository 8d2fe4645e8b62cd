// SPDX-License-Identifier: Apache-2.0
// An OpenCL whose compiler takes one piece of text for another. It stands before the ICD loader by LD_PRELOAD:
//   MISCOMPILE_FROM   the text in a program's source     MISCOMPILE_TO   what is compiled in its place,
//                     or "ABORT": the process aborts in clBuildProgram
// Spaces, tabs and line ends in the source match none in MISCOMPILE_FROM, so the layout of the source does not matter.
// Source of the prototype: Khronos OpenCL Specification, "The OpenCL Runtime". OpenCL's headers are not needed.
#define _GNU_SOURCE
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "icd_loader.h"

typedef void *(*Create)(void *, unsigned, const char **, const size_t *, int *);
typedef int (*Build)(void *, unsigned, const void *, const char *, void *, void *);

static __thread int aborts;

// The length of what matches at `text`; 0: nothing does.
static size_t matched(const char *text, const char *from) {
    const char *at = text;
    while (*from) {
        while (isspace((unsigned char)*from)) from++;
        while (at != text && isspace((unsigned char)*at)) at++;
        if (!*from) break;
        if (*at++ != *from++) return 0;
    }
    return (size_t)(at - text);
}

void *clCreateProgramWithSource(void *context, unsigned count, const char **texts, const size_t *lengths, int *error) {
    const char *from = getenv("MISCOMPILE_FROM"), *to = getenv("MISCOMPILE_TO");
    size_t size = 1, used = 0;
    for (unsigned i = 0; i < count; i++) size += lengths && lengths[i] ? lengths[i] : strlen(texts[i]);
    char *whole = calloc(size, 1);
    for (unsigned i = 0; i < count; i++) strncat(whole, texts[i], lengths && lengths[i] ? lengths[i] : size);
    if (from && to && *from) {
        char *made = calloc(size * (strlen(to) + 1), 1);
        for (const char *at = whole; *at;) {
            size_t length = matched(at, from);
            if (length && strcmp(to, "ABORT") == 0) aborts = 1;
            if (!length || aborts) made[used++] = *at++;
            else strcpy(made + used, to), used += strlen(to), at += length;
        }
        free(whole);
        whole = made;
    }
    const char *text = whole;
    void *program = ((Create)loader_function("clCreateProgramWithSource"))(context, 1, &text, NULL, error);
    free(whole);
    return program;
}

int clBuildProgram(void *program, unsigned count, const void *devices, const char *options, void *notify, void *data) {
    if (aborts) abort();
    return ((Build)loader_function("clBuildProgram"))(program, count, devices, options, notify, data);
}
