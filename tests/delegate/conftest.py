# SPDX-License-Identifier: Apache-2.0
"""A first start on a machine whose device is known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delegate import DeviceInfo
from delegate import engine as start_engine
from delegate.guard import cache
from delegate.guard.children import helper
from delegate.guard.children.trials import SELF_TEST
from delegate.guard.probing.probe import examine
from delegate.guard.store import BANS, TRIALS, Store, stores
from tests.attacks.bed import proofs_in


@pytest.fixture
def own_cache(
    device: DeviceInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Start with a cache that has only results of self-tests; end without a child process."""
    examine(device)
    proofs = [(store, proofs_in(store), fatal_in(store)) for store in stores()]
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, str(tmp_path / "cache"))
    for store, proven, fatal in proofs:
        store.save(TRIALS, proven)
        store.save(BANS, fatal)
    monkeypatch.setattr(start_engine, "is_on", True)
    yield
    helper._close()


def fatal_in(store: Store) -> dict[str, Any]:
    """Return a device's stored bans of self-tests, for instructions that it lacks.

    Without them, two child processes would die for each in every start.
    """
    bans = store.load(BANS).items()
    return {key: ended for key, ended in bans if json.loads(key)[0][0] == SELF_TEST}
