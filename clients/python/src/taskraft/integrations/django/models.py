"""The table of the outbox, so that migrations create it and the admin site can show it."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from taskraft.worker.outbox import TABLE_DEFAULT


class OutboxRow(models.Model):
    """A call that is not put yet; `taskraft.worker.outbox.Outbox` reads and writes the rows."""

    tube: models.CharField[str, str] = models.CharField(max_length=128)
    spec: models.BinaryField[bytes, bytes] = models.BinaryField()
    request_id: models.CharField[str, str] = models.CharField(max_length=64, blank=True, default="")
    refusal: models.CharField[str, str] = models.CharField(max_length=2000, blank=True, default="")

    class Meta:
        """Name of the table, and order of its rows in the admin site."""

        db_table = TABLE_DEFAULT
        ordering: ClassVar[list[str]] = ["id"]

    def __str__(self) -> str:
        return f"{self.tube} {self.refusal or self.request_id or 'waits'}"
