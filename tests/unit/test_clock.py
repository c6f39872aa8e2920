from datetime import UTC

from pgretention.clock import Clock, SystemClock


def test_the_wall_clock_is_in_utc_and_the_monotonic_one_never_goes_back() -> None:
    clock: Clock = SystemClock()
    assert clock.now().tzinfo is UTC
    assert clock.monotonic() <= clock.monotonic()
