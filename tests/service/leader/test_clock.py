"""The cluster clock approaches the wall clock slowly and never goes back."""

from taskraft_service.leader.clock import SLEW_PER_MILLE, ClusterClock


class Clocks:
    def __init__(self) -> None:
        self.wall = 1_000_000
        self.monotonic = 50

    def pass_ms(self, ms: int) -> None:
        self.wall += ms
        self.monotonic += ms


def test_the_clock_starts_at_the_wall_clock_and_runs_with_it():
    clocks = Clocks()
    clock = ClusterClock(lambda: clocks.wall, lambda: clocks.monotonic)
    assert clock.now_ms() == 1_000_000
    clocks.pass_ms(7)
    assert clock.now_ms() == 1_000_007


def test_a_jump_of_the_wall_clock_is_followed_slowly():
    clocks = Clocks()
    clock = ClusterClock(lambda: clocks.wall, lambda: clocks.monotonic)
    clocks.wall += 3_600_000
    assert clock.now_ms() == 1_000_000
    clocks.pass_ms(1_000)
    assert clock.now_ms() == 1_001_000 + SLEW_PER_MILLE
    for _ in range(1_000_000 // 1_000):
        clocks.pass_ms(1_000)
    assert clock.now_ms() == 2_001_000 + 1_001 * SLEW_PER_MILLE


def test_many_short_steps_slew_as_much_as_a_long_one():
    clocks = Clocks()
    clock = ClusterClock(lambda: clocks.wall, lambda: clocks.monotonic)
    clocks.wall -= 60_000
    for _ in range(1_000):
        clocks.pass_ms(1)
        clock.now_ms()
    assert clock.now_ms() == 1_001_000 - SLEW_PER_MILLE


def test_the_clock_never_goes_back():
    clocks = Clocks()
    clock = ClusterClock(lambda: clocks.wall, lambda: clocks.monotonic)
    before = clock.now_ms()
    clocks.wall = 0
    clocks.pass_ms(10)
    assert clock.now_ms() >= before


def test_a_new_leader_continues_from_the_applied_timestamps():
    clocks = Clocks()
    clock = ClusterClock(lambda: clocks.wall, lambda: clocks.monotonic)
    clock.observe(9_000_000, live=False)
    clocks.pass_ms(10)
    assert clock.now_ms() in (9_000_010, 9_000_009)


def test_timestamps_of_the_current_leader_override_a_wall_clock_that_is_ahead():
    clocks = Clocks()
    clock = ClusterClock(lambda: clocks.wall, lambda: clocks.monotonic)
    clock.observe(400_000, live=True)
    clocks.pass_ms(100)
    assert clock.now_ms() == 400_100


def test_replayed_timestamps_do_not_hold_the_clock_back():
    clocks = Clocks()
    clock = ClusterClock(lambda: clocks.wall, lambda: clocks.monotonic)
    clock.observe(400_000, live=False)
    assert clock.now_ms() == 1_000_000


def test_a_leader_with_a_slow_clock_does_not_go_below_earlier_timestamps():
    clocks = Clocks()
    clock = ClusterClock(lambda: clocks.wall, lambda: clocks.monotonic)
    assert clock.now_ms() == 1_000_000
    clock.observe(400_000, live=True)
    assert clock.now_ms() == 1_000_000
