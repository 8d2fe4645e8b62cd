# SPDX-License-Identifier: Apache-2.0
"""Runs a model: what its inputs are given, a job, and what a chain gives."""
