# SPDX-License-Identifier: Apache-2.0
"""What a node must have: reads nodes and tensors, raises Unsupported."""
