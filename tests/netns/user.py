"""Runs a program with variables of the environment, on a machine where everybody may make TAP devices, as udev has it.

    user.py NAME=VALUE COMMAND...
"""

import os
import sys

from unit import everybody_may_make_devices

everybody_may_make_devices()
os.environ.update([sys.argv[1].split("=", 1)])
os.execvp(sys.argv[2], sys.argv[2:])
