"""Configuration of the Django application."""

from __future__ import annotations

from django.apps import AppConfig


class TaskraftConfig(AppConfig):
    """The application with the label "taskraft"."""

    name = "taskraft.integrations.django"
    label = "taskraft"
    verbose_name = "Taskraft"
    default_auto_field = "django.db.models.BigAutoField"
