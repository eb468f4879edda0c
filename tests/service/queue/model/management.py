"""Acts of management, settings and the cluster version of the naive queue."""

from __future__ import annotations

from dataclasses import replace

from taskraft_service.queue.entities.refusal import CountResult, Reason
from taskraft_service.queue.operations.audit import RecordAct
from taskraft_service.queue.operations.cancel import CancelResult
from taskraft_service.queue.operations.leadership import SetClusterVersion
from taskraft_service.queue.operations.registry import ManagedCommand
from taskraft_service.queue.state.audit_table import AuditRecord


class NaiveManagement:
    """``acts`` are the records by number; ``cluster`` is the cluster version with its plan."""

    def do_managedcommand(self, managed: ManagedCommand):
        result = self.execute(managed.command)
        tasks = result.count if isinstance(result, CountResult) else 0
        if isinstance(result, CancelResult):
            tasks = result.asked + result.removed
        self.record(managed.act, tasks, result if isinstance(result, Reason) else 0)
        return result

    def do_recordact(self, command: RecordAct):
        self.record(command.act, 0, 0)
        return CountResult(1)

    def record(self, act, tasks, refused):
        number = self.act_numbers
        self.act_numbers += 1
        self.acts[number] = AuditRecord(self.stamped, self.index, tasks, int(refused), act)
        if len(self.acts) > self.limits.audit_records_max:
            del self.acts[min(self.acts)]

    def forget_acts(self):
        """Forget some acts that are too old, at the end of an entry."""
        before = self.stamped - self.limits.audit_retention_ms
        old = [number for number, act in sorted(self.acts.items()) if act.at_ms < before]
        for number in old[: self.limits.records_forgotten_max]:
            del self.acts[number]

    def do_setclusterversion(self, command: SetClusterVersion):
        cluster, planned = self.cluster, command.planned
        raised = max(command.version - cluster.version, 0)
        if planned != cluster.planned:
            cluster = replace(cluster, planned_at_ms=self.now)
        if not planned:
            cluster = replace(cluster, planned_at_ms=0)
        self.cluster = replace(cluster, version=cluster.version + raised, planned=planned)
        return CountResult(int(raised > 0))
