"""Create the table of the outbox."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """The first migration."""

    initial = True

    dependencies: ClassVar[list[tuple[str, str]]] = []

    operations: ClassVar[list[migrations.operations.base.Operation]] = [
        migrations.CreateModel(
            name="OutboxRow",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("tube", models.CharField(max_length=128)),
                ("spec", models.BinaryField()),
                ("request_id", models.CharField(blank=True, default="", max_length=64)),
                ("refusal", models.CharField(blank=True, default="", max_length=2000)),
            ],
            options={"db_table": "taskraft_outbox", "ordering": ["id"]},
        ),
    ]
