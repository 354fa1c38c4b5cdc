# SPDX-License-Identifier: BSD-3-Clause
"""The version of server and kit; the Makefile reads it from here too."""

VERSION = "0.1.0"
