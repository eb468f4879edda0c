"""Set Django up before the tests import its models."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.clients.integrations.django_settings")
django.setup()
