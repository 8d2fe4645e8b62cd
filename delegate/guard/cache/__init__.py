# SPDX-License-Identifier: Apache-2.0
"""The user's cache folder: reproducible files, up to a size limit."""

from delegate.guard.cache.digests import MappedFile, keep_digests, mapped, sha256_of
from delegate.guard.cache.files import (
    load,
    open_part,
    replace_file,
    store,
    write_cached,
)
from delegate.guard.cache.folder import (
    ENVIRONMENT_VARIABLE,
    cache_folder,
    locked,
    make_folder,
    user_folder,
)
from delegate.guard.cache.leases import hold
from delegate.guard.cache.limit import (
    DOWNLOADS,
    LIMIT_VARIABLE,
    MODELS,
    PROGRAMS,
    CacheEntry,
    cache_entries,
    cache_in_use,
    cache_limit_bytes,
    prune_cache,
)

__all__ = [
    "DOWNLOADS",
    "ENVIRONMENT_VARIABLE",
    "LIMIT_VARIABLE",
    "MODELS",
    "PROGRAMS",
    "CacheEntry",
    "MappedFile",
    "cache_entries",
    "cache_folder",
    "cache_in_use",
    "cache_limit_bytes",
    "hold",
    "keep_digests",
    "load",
    "locked",
    "make_folder",
    "mapped",
    "open_part",
    "prune_cache",
    "replace_file",
    "sha256_of",
    "store",
    "user_folder",
    "write_cached",
]
