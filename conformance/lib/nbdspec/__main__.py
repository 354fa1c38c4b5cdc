# SPDX-License-Identifier: BSD-3-Clause
"""python3 -m nbdspec"""

import sys

from . import interrupt

try:
    interrupt.catch()
    from .cli import main

    status = main()
except KeyboardInterrupt:
    print("nbdspec: interrupted", file=sys.stderr)
    status = 2
sys.exit(status)
