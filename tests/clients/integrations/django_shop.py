"""Tasks of a Django project."""

from taskraft.integrations.django.transactions import with_connections
from taskraft.worker import App

app = App("shop")
app.tube("mail")


@app.task(tube="mail")
@with_connections
def welcome(name: str) -> str:
    return f"Hello {name}"
