"""How much the tubes of the naive queue let be taken: from the list of all takes."""

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
        """Return what is in the bucket of a tube, in thousandths of a take."""
        rate, full = tube["view"].options.rate_per_second, self.burst(tube) * 1000
        level, at = full, 0
        for taken_at in tube["takes"]:
            level = min(level + (taken_at - at) * rate, full) - 1000
            at = taken_at
        return min(level + (self.now - at) * rate, full)

    def burst(self, tube):
        options = tube["view"].options
        return options.rate_burst or options.rate_per_second

    def use_rate(self, tube):
        rate = tube["view"].options.rate_per_second
        if not rate:
            return
        tube["takes"].append(self.now)
        missing = 1000 - self.tokens(tube)
        tube["rate_due"] = self.now + (missing + rate - 1) // rate if missing > 0 else None
