# SPDX-License-Identifier: Apache-2.0
"""Interpreters: TFLite's, LiteRT's CompiledModel, and substitutes where neither is installed."""
