"""Judge whether a client program of any language keeps the contract: `taskraft conformance`.

The suite starts the program, sends commands to its standard input as JSON lines and reads one JSON
line as the answer to each command. Meanwhile the suite watches the cluster with the Python client,
changes the leader, and cuts the connections of the program. docs/languages.md describes the
commands.
"""
