"""Bulk sweeps of the naive queue: a list of all sweeps, with the forgotten ones removed."""

from __future__ import annotations

from taskraft_service.queue.entities.bulk_sweep import REASONS_MAX, BulkAction, BulkState
from taskraft_service.queue.entities.refusal import CountResult, Reason
from taskraft_service.queue.operations.bulk_sweeps import (
    BulkSweepResult,
    RunBulkSweep,
    StartBulkSweep,
    StopBulkSweep,
)
from taskraft_service.queue.operations.selection import ByFilter, ByIds

OPEN = (BulkState.WAITING, BulkState.RUNNING)


class NaiveBulkSweeps:
    """The first open sweeps run; the other open sweeps wait."""

    def bulk_sweep(self, number):
        return next((sweep for sweep in self.sweeps if sweep["number"] == number), None)

    def open_sweeps(self):
        return [sweep for sweep in self.sweeps if sweep["state"] in OPEN]

    def do_startbulksweep(self, command: StartBulkSweep):
        request, limits = command.request, self.limits
        tube = self.tube(request.tube)
        moves = request.action is BulkAction.MOVE
        if not tube or (moves and not self.tube(request.move_to)):
            return Reason.TUBE_NOT_FOUND
        open_sweeps = self.open_sweeps()
        own = [one for one in open_sweeps if one["request"].principal == request.principal]
        is_over_share = request.principal and len(own) >= limits.bulk_sweeps_share_max
        if is_over_share or len(open_sweeps) >= limits.bulk_sweeps_open_max:
            return Reason.LIMIT_REACHED
        before = self.stamped - limits.bulk_retention_ms
        kept = [one for one in self.sweeps if one["state"] in OPEN or one["ended"] >= before]
        self.sweep_numbers += 1
        sweep = {
            "number": self.sweep_numbers,
            "request": request,
            "tube": tube["number"],
            "state": BulkState.WAITING,
            "changed": 0,
            "refused": [],
            "position": 0,
            "last": len(request.ids) or tube["next"] - 1,
            "steps": 0,
            "started": self.stamped,
            "ended": 0,
            "problem": "",
        }
        self.sweeps = [*kept, sweep]
        ended = [one for one in self.sweeps if one["state"] not in OPEN]
        if len(ended) > limits.bulk_sweeps_kept_max:
            self.sweeps.remove(ended[0])
        self.give_turns()
        return BulkSweepResult(sweep["number"])

    def give_turns(self):
        for sweep in self.open_sweeps()[: self.limits.bulk_sweeps_running_max]:
            sweep["state"] = BulkState.RUNNING

    def end_sweep(self, sweep, state, problem=""):
        sweep.update(state=state, problem=problem, ended=self.stamped)
        self.give_turns()

    def do_stopbulksweep(self, command: StopBulkSweep):
        sweep = self.bulk_sweep(command.number)
        if not sweep:
            return Reason.BULK_SWEEP_NOT_FOUND
        if sweep["state"] in OPEN:
            self.end_sweep(sweep, BulkState.STOPPED)
        return BulkSweepResult(sweep["number"])

    def do_runbulksweep(self, command: RunBulkSweep):
        sweep = self.bulk_sweep(command.number)
        if not sweep or sweep["state"] is not BulkState.RUNNING or sweep["steps"] != command.step:
            return CountResult(0)
        sweep["steps"] += 1
        tube = self.tube(sweep["request"].tube)
        if not tube or tube["number"] != sweep["tube"]:
            self.end_sweep(sweep, BulkState.FAILED, "the tube was dropped or truncated")
            return CountResult(0)
        if command.change is None:
            state = BulkState.FAILED if command.problem else BulkState.DONE
            self.end_sweep(sweep, state, command.problem)
            return CountResult(0)
        result = self.execute(command.change)
        if isinstance(result, Reason):
            self.end_sweep(sweep, BulkState.FAILED, result.name)
            return CountResult(0)
        sweep["changed"] += result.count
        sweep["refused"] += [reason for _, reason in result.refused]
        self.advance_sweep(sweep, command.change.selector, result.continue_after_id)
        return CountResult(result.count)

    def advance_sweep(self, sweep, selector, after_id):
        if sweep["request"].ids:
            match selector:
                case None:
                    size = 0
                case ByFilter():
                    size = selector.tasks_max
                case ByIds():
                    size = len(selector.ids)
                case _:
                    size = len(selector.keys)
            sweep["position"] = min(sweep["position"] + size, sweep["last"])
        else:
            sweep["position"] = after_id or sweep["last"]
        if sweep["position"] >= sweep["last"]:
            self.end_sweep(sweep, BulkState.DONE)

    def sweep_view(self, sweep):
        """Return the fields of a sweep that callers see; a problem ends before its first colon."""
        named = list(dict.fromkeys(sweep["refused"]))[:REASONS_MAX]
        return {
            **{name: sweep[name] for name in ("number", "request", "state", "changed", "position")},
            **{name: sweep[name] for name in ("steps", "problem")},
            "position_max": sweep["last"],
            "started_ms": sweep["started"],
            "ended_ms": sweep["ended"],
            "refused": len(sweep["refused"]),
            "reasons": {int(reason): sweep["refused"].count(reason) for reason in named},
        }
