"""The command `manage.py taskraft_relay`: put the calls of the outbox."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS
from django.utils.module_loading import import_string

from taskraft.integrations.django.transactions import relay_of
from taskraft.worker import App
from taskraft.worker.outbox_relay import INTERVAL_DEFAULT

if TYPE_CHECKING:
    from django.core.management.base import CommandParser


class Command(BaseCommand):
    """Puts the calls of the outbox until SIGTERM or Ctrl-C."""

    help = "Put the calls of the taskraft outbox as tasks, until SIGTERM or Ctrl-C."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options of the command."""
        parser.add_argument(
            "--app", help="App, such as shop.tasks:app; default: the setting TASKRAFT_APP."
        )
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="Alias of the database.")
        parser.add_argument(
            "--interval", default=INTERVAL_DEFAULT, help="Pause while the outbox is empty."
        )
        parser.add_argument("--once", action="store_true", help="Put the present calls, and end.")

    def handle(
        self, *, app: str | None, database: str, interval: str, once: bool, **_: object
    ) -> None:
        """Run the relay; the first signal ends it after the current message."""
        with _app_of(app or str(getattr(settings, "TASKRAFT_APP", ""))) as found:
            found.create_tubes()
            relay = relay_of(found, database)
            if once:
                self.stdout.write(f"{relay.run_once()} calls were put")
                return
            stopping = threading.Event()
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: stopping.set())
            self.stdout.write("the relay runs")
            self.stdout.flush()
            relay.run(stopping, interval=interval)


def _app_of(reference: str) -> App:
    try:
        found = import_string(reference.replace(":", "."))
    except ImportError as error:
        raise CommandError(
            f"cannot import the app {reference!r}; name it like shop.tasks:app with --app or the "
            f"setting TASKRAFT_APP: {error}"
        ) from error
    if not isinstance(found, App):
        raise CommandError(f"{reference} is not an App but {type(found).__name__}")
    return found
