// SPDX-License-Identifier: Apache-2.0
// A delegate as a driver's library brings it, for float ADD of equal shapes; -DFAULT plants a fault.
// With delegate/host/accelerator.c it is an accelerator of LiteRT's CompiledModel.
// Source of the structures: tflite/core/c/common.h
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NONE, OFF_BY_ONE, BATCH_2, CRASH, HANG, PAST, LEAK, HANDLES, STALE, NOTHING, DIFFERS, REFUSE };
#ifndef FAULT
#define FAULT NONE
#endif

typedef struct { int size; int data[]; } Ints;
typedef struct {
    int type; float *data; Ints *dims; struct { float scale; int32_t zero; } params;
    int allocation; size_t bytes; void *owner; const char *name; void *delegate; int handle;
    bool is_stale; bool is_variable; struct { int type; void *params; } quantization;
    void *sparsity; const Ints *signature;
} Tensor;
typedef struct { Ints *inputs, *outputs, *intermediates, *temporaries; void *user, *builtin; } Node;
typedef struct Context Context;
typedef struct Delegate Delegate;
typedef struct {
    void *(*init)(Context *, const char *, size_t);
    void (*free)(Context *, void *);
    int (*prepare)(Context *, Node *);
    int (*invoke)(Context *, Node *);
    const char *(*profiling)(const Context *, const Node *);
    int32_t builtin; const char *name; int version; void *external; void *async; uint64_t inplace;
} Registration;
struct Context {
    size_t count; int (*plan)(Context *, Ints **); Tensor *tensors; void *impl;
    int (*resize)(Context *, Tensor *, Ints *); void (*report)(Context *, const char *, ...);
    int (*add)(Context *, int, int *);
    int (*node)(Context *, int, Node **, Registration **);
    int (*replace)(Context *, Registration, const Ints *, Delegate *);
};
struct Delegate { void *data; int (*prepare)(Context *, Delegate *); void *hooks[3]; int64_t flags; void *builder; };
typedef struct { Delegate *delegate; Ints *nodes, *inputs, *outputs; } Params;
typedef struct { int count, runs; int nodes[64][3]; float *first[3]; } Kernel;

void *leaked;  // visible, so that the compiler keeps what is written there

static void *init(Context *context, const char *buffer, size_t length) {
    (void)length;
    const Params *params = (const Params *)buffer;
    Kernel *kernel = calloc(1, sizeof(Kernel));
    for (int i = 0; i < params->nodes->size; i++) {
        Node *node; Registration *registration;
        context->node(context, params->nodes->data[i], &node, &registration);
        kernel->nodes[i][0] = node->inputs->data[0];
        kernel->nodes[i][1] = node->inputs->data[1];
        kernel->nodes[i][2] = node->outputs->data[0];
        kernel->count++;
    }
    if (FAULT == LEAK && (leaked = malloc(1 << 18))) memset(leaked, 1, 1 << 18);
    if (FAULT == HANDLES && open("/dev/null", O_RDONLY) < 0) return NULL;
    return kernel;
}

static void release(Context *context, void *kernel) { (void)context; free(kernel); }

static int prepare(Context *context, Node *node) {
    Kernel *kernel = node->user;
    for (int i = 0; i < kernel->count; i++) {
        Tensor *from = &context->tensors[kernel->nodes[i][0]], *to = &context->tensors[kernel->nodes[i][2]];
        Ints *dims = malloc(sizeof(Ints) + sizeof(int) * from->dims->size);
        memcpy(dims, from->dims, sizeof(Ints) + sizeof(int) * from->dims->size);
        if (context->resize(context, to, dims)) return 1;
    }
    return 0;
}

static int invoke(Context *context, Node *node) {
    Kernel *kernel = node->user;
    kernel->runs++;
    for (int i = 0; i < kernel->count && FAULT != NOTHING; i++) {
        Tensor *t[3];
        float *data[3];
        for (int j = 0; j < 3; j++) {
            t[j] = &context->tensors[kernel->nodes[i][j]];
            if (!kernel->first[j]) kernel->first[j] = t[j]->data;
            data[j] = FAULT == STALE ? kernel->first[j] : t[j]->data;
        }
        size_t count = t[2]->bytes / sizeof(float);
        for (size_t k = 0; k < count; k++) data[2][k] = data[0][k] + data[1][k];
        if (FAULT == OFF_BY_ONE) data[2][count / 2] += 1;
        if (FAULT == BATCH_2 && t[2]->dims->data[0] > 1) data[2][count - 1] = 7;
        if (FAULT == CRASH) *(volatile int *)8 = 1;
        while (FAULT == HANG) sleep(1);
        if (FAULT == PAST) data[2][count] = 7;
        if (FAULT == DIFFERS && kernel->runs % 3 == 0) data[2][0] += 1;
    }
    return 0;
}

static int choose(Context *context, Delegate *delegate) {
    Ints *plan;
    context->plan(context, &plan);
    Ints *chosen = malloc(sizeof(Ints) + sizeof(int) * plan->size);
    chosen->size = 0;
    for (int i = 0; i < plan->size; i++) {
        Node *node; Registration *registration;
        context->node(context, plan->data[i], &node, &registration);
        if (registration->builtin != 0 || *(int *)node->builtin != 0) continue;  // ADD, no activation
        Tensor *a = &context->tensors[node->inputs->data[0]], *b = &context->tensors[node->inputs->data[1]];
        bool is_equal = a->dims->size == b->dims->size && a->bytes == b->bytes && a->type == 1
            && !memcmp(a->dims->data, b->dims->data, sizeof(int) * a->dims->size);
        if (is_equal) chosen->data[chosen->size++] = plan->data[i];
    }
    if (FAULT == REFUSE) return 1;
    Registration made = {init, release, prepare, invoke, NULL, 51, "Liar", 1, NULL, NULL, 0};
    int status = context->replace(context, made, chosen, delegate);
    free(chosen);
    return status;
}

Delegate *tflite_plugin_create_delegate(char **keys, char **values, size_t count, void (*report)(const char *)) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(keys[i], "compiled_model") && (strcmp(keys[i], "fine") || strcmp(values[i], "yes"))) { report("unknown option"); return NULL; }
    Delegate *made = calloc(1, sizeof(Delegate));
    made->prepare = choose;
    made->flags = 3;
    return made;
}

void tflite_plugin_destroy_delegate(Delegate *delegate) { free(delegate); }
