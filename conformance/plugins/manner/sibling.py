# SPDX-License-Identifier: BSD-3-Clause
"""Finds a module beside itself by its own file's name."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

import ramdisk  # noqa: E402

API_VERSION = 2
open = ramdisk.open
get_size = ramdisk.get_size
pread = ramdisk.pread
pwrite = ramdisk.pwrite
