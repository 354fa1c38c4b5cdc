# SPDX-License-Identifier: BSD-3-Clause
"""A stand-in for oVirt's imageio daemon: what a client of it can observe.

Written from the daemon's documented and observed behaviour, with the standard
library alone. It keeps images in plain files, and has knobs that a real daemon
lacks: latency, bandwidth and faults, so that tests and benchmarks can rely on them.
"""
