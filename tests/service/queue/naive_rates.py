"""How much the tubes of the naive queue let be taken: from what is left in their buckets."""

from __future__ import annotations

from service.queue.commands import State


class NaiveRates:
    """Counts again each time."""

    def takeable(self, tube):
        """Return how many tasks of a tube may be taken: at once, and by the second."""
        options = tube["view"].options
        if options.take_paused:
            return 0
        left = 10**6
        if options.concurrency:
            left = options.concurrency - len(self.of(tube, State.TAKEN))
        if options.rate_per_second:
            left = min(left, self.tokens(tube) // 1000)
        return max(left, 0)

    def tokens(self, tube):
        """Return what is in the bucket of a tube, in thousandths of a take; at first it is full."""
        rate, full = tube["view"].options.rate_per_second, self.burst(tube) * 1000
        if tube["bucket"] is None:
            return full
        level, at = tube["bucket"]
        return min(level + (self.now - at) * rate, full)

    def burst(self, tube):
        options = tube["view"].options
        return options.rate_burst or options.rate_per_second

    def use_rate(self, tube):
        if tube["view"].options.rate_per_second:
            self.fill(tube, self.tokens(tube) - 1000)

    def fill(self, tube, level):
        """Say what is in the bucket now, and when there will be enough for a take."""
        rate = tube["view"].options.rate_per_second
        level = min(level, self.burst(tube) * 1000)
        tube["bucket"] = (level, self.now)
        missing = 1000 - level
        tube["rate_due"] = self.now + (missing + rate - 1) // rate if missing > 0 else None

    def change_options(self, tube, view):
        """Go on with other options: with what is left of a rate, or a whole burst of a new one."""
        had, left = tube["view"].options.rate_per_second, self.tokens(tube)
        tube["view"] = view
        if not view.options.rate_per_second:
            tube["bucket"] = tube["rate_due"] = None
        elif had:
            self.fill(tube, left)
        else:
            self.fill(tube, self.burst(tube) * 1000)
