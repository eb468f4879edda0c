"""Run the command as ``python -m taskraft.cli``."""

from taskraft.cli import main

main(prog_name="taskraft")
