"""Django application with an outbox: put tasks together with the commit of a transaction.

Add "taskraft.integrations.django" to INSTALLED_APPS, and run `migrate`. See
docs/integrations.md.
"""
