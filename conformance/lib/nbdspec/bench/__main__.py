# SPDX-License-Identifier: BSD-3-Clause
"""python3 -m nbdspec.bench: the same as nbdspec bench."""

import argparse
import sys

from . import add_arguments, run

parser = argparse.ArgumentParser(prog="nbdspec bench", description="Run benchmarks.")
add_arguments(parser)
sys.exit(run(parser.parse_args()))
