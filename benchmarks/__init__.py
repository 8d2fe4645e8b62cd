# SPDX-License-Identifier: Apache-2.0
"""Times of the delegate against TFLite's own paths, all measured in one run; judges nothing."""
