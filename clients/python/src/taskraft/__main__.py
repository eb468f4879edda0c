"""Run the command line as ``python -m taskraft``."""

from taskraft.cli import main

main(prog_name="taskraft")
