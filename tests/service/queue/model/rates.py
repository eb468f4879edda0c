"""Rates of the naive queue: the number of takes that the token buckets allow.

``rates`` of a tube has, by sub-queue, the remaining tokens, their time, and the time until which
the sub-queue is barred.
"""

from __future__ import annotations

from taskraft_service.queue.entities.task_state import State


class NaiveRates:
    """Rates that are computed anew for each question."""

    def takeable(self, tube):
        """Return how many tasks of a tube may be taken: now, and per second."""
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
        """Return the tokens of a tube's bucket in thousandths; a new bucket is full."""
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
        """Set the tokens of the bucket, and the time at which a take is possible."""
        rate = tube["view"].options.rate_per_second
        level = min(level, self.burst(tube) * 1000)
        tube["bucket"] = (level, self.now)
        missing = 1000 - level
        tube["rate_due"] = self.now + (missing + rate - 1) // rate if missing > 0 else None

    def change_options(self, tube, view):
        """Change options: a changed rate keeps its tokens, a new rate has a full burst."""
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
        """Return whether tasks of a sub-queue may be taken; a deadline ends a bar."""
        return name not in tube["rates"] or tube["rates"][name][2] is None

    def use_subqueue_rate(self, task):
        tube, name = task["tube"], task["subqueue"]
        if tube["view"].options.subqueue_rate_per_second:
            self.note_left(tube, name, self.left(tube, name) - 1000)

    def rate_due(self, tube):
        """Return when more tasks may be taken from a tube or one of its sub-queues, or None."""
        dues = [tube["rate_due"], *(due for _, _, due in tube["rates"].values())]
        return min((due for due in dues if due), default=None)

    def refill(self, tube):
        """Readmit the sub-queues whose time has come; return their number."""
        if tube["rate_due"] and tube["rate_due"] <= self.now:
            tube["rate_due"] = None
        due = [name for name, (_, _, due) in tube["rates"].items() if due and due <= self.now]
        for name in due:
            self.note_left(tube, name, self.left(tube, name))
        self.settle_turns(tube)
        return len(due)
