"""What each algorithm allows in any window, over the moments at which requests were let through."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

from gateway.limits.rate import Limit


def excess(limit: Limit, moments: Sequence[int], blur_us: int = 0) -> int:
    """How many more passed than the limit allows, in the window where it was most.

    Args:
        limit: the limit, as a token bucket, a sliding window log or a fixed window.
        moments: when requests were let through, in microseconds.
        blur_us: how much later than the store's decision a moment may have been noted.
    """
    times = sorted(moments)
    if limit.algorithm == "fixed_window":
        windows = Counter(time // limit.period_us for time in times)
        return max(windows.values(), default=0) - limit.count
    if limit.algorithm == "sliding_window_log":
        ends = (bisect_right(times, start + limit.period_us - blur_us) for start in times)
        return max((end - at for at, end in enumerate(ends)), default=0) - limit.count
    # Of a bucket, for any two of them: how many from one to the other, less what it holds and
    # what came back in between; in whole numbers, `period_us` for each request.
    most = lead = None
    for number, time in enumerate(times):
        ahead = number * limit.period_us - time * limit.count
        lead = -ahead if lead is None else max(lead, -ahead)
        most = ahead + lead if most is None else max(most, ahead + lead)
    if most is None:
        return -limit.burst
    return 1 - limit.burst - (blur_us * limit.count - most) // limit.period_us
