# SPDX-License-Identifier: Apache-2.0
"""Reference outputs: the kernels that compute them, and error bounds for floats."""
