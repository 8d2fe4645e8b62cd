# SPDX-License-Identifier: Apache-2.0
"""A fault in one kernel of this process: one launch of it changes the first byte that it wrote."""

from __future__ import annotations

import re

import pytest

from delegate.plan import sources
from delegate.plan.dispatch import kernels

# What KERNEL of kernels/kernel.clh is, and then the fault. It waits for the work-group's own tile.
_KERNEL = """kernel void {name}(global uchar* arena, global const uchar* constants,
                   global const int* all_params, int first) {{
  DECLARE_SCRATCH;
  global const int* params = all_params + first;
  int group = get_group_id(0);
  int picture = group / params[-2];
  LOCAL({name}_tile)(arena + picture * params[-1], constants, params,
                     group - picture * params[-2], scratch);
  barrier(CLK_GLOBAL_MEM_FENCE);
  if (get_global_id(0) == 0 && first == {first}) (arena + OUTPUT)[0] ^= 2;
}}
"""


def plant(name: str, first: int, patch: pytest.MonkeyPatch) -> None:
    """Let kernel `name` compute wrongly in what this process builds from now on.

    `first`: where the parameters of the launch begin that goes wrong; see Layout.firsts.
    """
    sound = sources.text_of.__wrapped__

    def text(file: str) -> str:
        found = str(sound(file))
        faulty = _KERNEL.format(name=name, first=first)
        return re.sub(rf"^KERNEL\({name}\)$", faulty, found, flags=re.MULTILINE)

    patch.setattr(sources, "text_of", text)
    # A launch is known by where its parameters lie in memory, so none has them as an argument.
    patch.setattr(kernels, "may_be_argument", lambda *_: False)
