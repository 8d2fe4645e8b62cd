# SPDX-License-Identifier: Apache-2.0
"""A fault in one kernel of this process: one of its launches changes its first output byte."""

from __future__ import annotations

import re

import pytest

from delegate.plan import sources
from delegate.plan.dispatch import kernels

# The expansion of KERNEL in kernels/kernel.clh, a barrier and the fault.
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
    """Make kernel `name` wrong in programs that this process builds from now on.

    `first`: the offset of the wrong launch's parameters; see Layout.firsts.
    """
    sound = sources.text_of.__wrapped__

    def text(file: str) -> str:
        faulty = _KERNEL.format(name=name, first=first)
        return re.sub(rf"^KERNEL\({name}\)$", faulty, str(sound(file)), flags=re.MULTILINE)

    patch.setattr(sources, "text_of", text)
    # The offset of its parameters identifies a launch, so they must not be an argument.
    patch.setattr(kernels, "may_be_argument", lambda *_: False)
