"""When callers who were refused should come back: not before what is expected, and not all at once.

Knows seconds alone. Always: whole seconds, at least one, and drawn anew each time from three values or more.
"""

import math
import random

SPREAD_S = 3.0
SPREAD = 0.25
"""By how much at most, in seconds or as a part of what is expected, whichever is more, a wait is made longer."""


def retry_after(expected_s: float = 0.0) -> int:
    """What `Retry-After` says where so long a wait is expected; 0 where nothing is known."""
    return max(1, math.ceil(expected_s + random.uniform(0.0, max(SPREAD_S, SPREAD * expected_s))))
