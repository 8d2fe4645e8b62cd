// SPDX-License-Identifier: Apache-2.0
// The functions of the ICD loader, for libraries that stand before it by LD_PRELOAD. Needs _GNU_SOURCE.
#include <dlfcn.h>
#include <link.h>
#include <string.h>

static int find_loader(struct dl_phdr_info *info, size_t size, void *found) {
    (void)size;
    if (!info->dlpi_name || !strstr(info->dlpi_name, "libOpenCL")) return 0;
    *(void **)found = dlopen(info->dlpi_name, RTLD_NOW | RTLD_NOLOAD);
    return *(void **)found != NULL;
}

// NULL: there is no loader, or no such function.
static void *loader_function(const char *name) {
    static void *loader;
    if (!loader) dl_iterate_phdr(find_loader, &loader);
    return loader ? dlsym(loader, name) : NULL;
}
