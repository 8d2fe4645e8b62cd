# SPDX-License-Identifier: Apache-2.0
"""What is used when nothing is named: a model, its labels and a picture."""
