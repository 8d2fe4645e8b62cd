# SPDX-License-Identifier: Apache-2.0
"""fp16 storage of float tensors within a partition."""
