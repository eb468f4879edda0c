"""Settings of a Django project with the outbox; its tasks are in `django_shop`."""

import os

SECRET_KEY = "none"
INSTALLED_APPS = ["taskraft.integrations.django"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("SHOP_DATABASE", ":memory:"),
        "OPTIONS": {"timeout": 30},
    }
}
USE_TZ = True
TASKRAFT_APP = "tests.clients.integrations.django_shop:app"
