# SPDX-License-Identifier: Apache-2.0
"""Numbers only: numpy in, numpy out. No tensor, no launch."""
