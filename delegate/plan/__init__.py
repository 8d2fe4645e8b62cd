# SPDX-License-Identifier: Apache-2.0
"""What a run needs, resolved to numbers: the record between whoever plans and whoever executes."""
