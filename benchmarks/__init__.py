# SPDX-License-Identifier: Apache-2.0
"""Times of the delegate and of TFLite's paths, measured in one run."""
