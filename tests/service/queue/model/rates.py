"""How much the tubes of the naive queue let be taken: from what is left in their buckets.

A tube's ``rates`` has what each sub-queue has left, since when, and until when it is barred.
"""

from __future__ import annotations

from taskraft_service.queue.entities.task_state import State


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
        old, new = tube["view"].options, view.options
        kept = {name: self.left(tube, name) for name in tube["rates"]}
        tube["view"] = view
        rate = new.subqueue_rate_per_second
        if not rate:
            tube["rates"] = {}
        elif (old.subqueue_rate_per_second, self.full(old)) != (rate, self.full(new)):
            for name, level in kept.items():
                if level == self.full(old) and self.allows(tube, name):
                    del tube["rates"][name]
                else:
                    self.note_left(tube, name, min(level, self.full(new)))
        self.settle_turns(tube)
        if not view.options.rate_per_second:
            tube["bucket"] = tube["rate_due"] = None
        elif had:
            self.fill(tube, left)
        else:
            self.fill(tube, self.burst(tube) * 1000)

    # --------------------------------------------------------------------------------- sub-queues

    def full(self, options):
        return (options.subqueue_rate_burst or options.subqueue_rate_per_second) * 1000

    def left(self, tube, name):
        options = tube["view"].options
        if name not in tube["rates"]:
            return self.full(options)
        level, at, _ = tube["rates"][name]
        come = (self.now - at) * options.subqueue_rate_per_second
        return min(level + come, self.full(options))

    def note_left(self, tube, name, level):
        rate, missing = tube["view"].options.subqueue_rate_per_second, 1000 - level
        due = self.now + (missing + rate - 1) // rate if missing > 0 else None
        tube["rates"][name] = (level, self.now, due)

    def allows(self, tube, name):
        """Tell whether a sub-queue is not barred; that ends when its deadline has fired."""
        return name not in tube["rates"] or tube["rates"][name][2] is None

    def use_subqueue_rate(self, task):
        tube, name = task["tube"], task["subqueue"]
        if tube["view"].options.subqueue_rate_per_second:
            self.note_left(tube, name, self.left(tube, name) - 1000)

    def rate_due(self, tube):
        """Return when more may be taken from a tube, or from one of its sub-queues; or None."""
        dues = [tube["rate_due"], *(due for _, _, due in tube["rates"].values())]
        return min((due for due in dues if due), default=None)

    def refill(self, tube):
        """Let takes go on whose time has come; return how many sub-queues that were."""
        if tube["rate_due"] and tube["rate_due"] <= self.now:
            tube["rate_due"] = None
        due = [name for name, (_, _, due) in tube["rates"].items() if due and due <= self.now]
        for name in due:
            self.note_left(tube, name, self.left(tube, name))
        self.settle_turns(tube)
        return len(due)
