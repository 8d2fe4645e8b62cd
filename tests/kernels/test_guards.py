# SPDX-License-Identifier: Apache-2.0
"""A kernel that writes past the end of a tensor is detected, whatever it writes."""

from __future__ import annotations

import pytest

from delegate import DeviceInfo
from delegate.plan import sources
from tests.delegate.ops.test_gather import gather
from tests.support.cases import GROUPS, Strategy, assert_exact_strategy
from tests.support.model import chain_model


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
def test_write_past_end_is_detected(
    device: DeviceInfo, strategy: Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = sources.text_of
    monkeypatch.setattr(
        sources, "text_of", lambda file: read(file).replace("i < count", "i <= count")
    )
    # 64 bytes, so that no alignment padding follows the output.
    model = chain_model([gather((5, 16), [4, 0, 3, 3])])
    with pytest.raises(AssertionError, match=r"bytes written behind .* the first 0 bytes past"):
        assert_exact_strategy(model, device, strategy)
