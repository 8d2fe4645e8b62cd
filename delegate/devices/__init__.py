# SPDX-License-Identifier: Apache-2.0
"""A Model's graph on one device or several, its runs, inputs and outputs."""
