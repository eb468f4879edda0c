"""The web console of taskraft: a web page over the public API, for people.

The package uses only the Python client. It stores nothing; a restart loses no data.
"""
