"""The clocks of the system, by which xq waits. Each module imports this one in place of Python's `time`.

freezegun replaces the functions of Python's module, and a wait by them would never end. It leaves `clock_gettime`.
"""

import time as system
from functools import partial

sleep = system.sleep
monotonic = partial(system.clock_gettime, system.CLOCK_MONOTONIC)
time = partial(system.clock_gettime, system.CLOCK_REALTIME)
time_ns = partial(system.clock_gettime_ns, system.CLOCK_REALTIME)
