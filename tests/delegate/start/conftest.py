# SPDX-License-Identifier: Apache-2.0
"""A start as the first one of a machine whose device is known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from delegate import DeviceInfo, cache
from delegate.sandbox import helper
from delegate.start import rehearsal
from delegate.start.probe import examine
from delegate.store import TRIALS, stores
from tests.attacks.bed import proofs_in


@pytest.fixture
def own_cache(
    device: DeviceInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Begin with the proofs of the device and nothing else; end with no child."""
    examine(device)
    proofs = [(store, proofs_in(store)) for store in stores()]
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, str(tmp_path / "cache"))
    for store, proven in proofs:
        store.save(TRIALS, proven)
    monkeypatch.setattr(rehearsal, "is_on", True)
    yield
    helper._close()
