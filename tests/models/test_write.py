# SPDX-License-Identifier: Apache-2.0
"""The files of whole models."""

from __future__ import annotations

from pathlib import Path

import pytest

from delegate.inspect import read_model
from tests.models.write import MODELS, main
from tests.support.tiers import slow

pytestmark = pytest.mark.model


@slow
def test_files_are_models_with_known_inputs(tmp_path: Path) -> None:
    main(tmp_path / "models")
    written = sorted((tmp_path / "models").iterdir())
    assert [path.stem for path in written] == sorted(MODELS)
    for path in written:
        graph = read_model(path)
        assert graph.nodes
        assert all(min(tensor.shape, default=1) > 0 for tensor in graph.inputs)
