# SPDX-License-Identifier: Apache-2.0
"""Graph + target -> verdicts; partition -> schedule."""
