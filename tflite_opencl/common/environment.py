# SPDX-License-Identifier: Apache-2.0
"""Environment variables that every command sets, so that all of them measure alike."""

import os


def prepare_environment() -> None:
    """Set what drivers read when they are loaded, where the user has not set it."""
    # PoCL pins its threads to cores only if told so before it is loaded.
    os.environ.setdefault("POCL_AFFINITY", "1")
