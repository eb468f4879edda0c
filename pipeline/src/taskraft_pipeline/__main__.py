"""Run the pipeline's commands without the client's command: python -m taskraft_pipeline."""

from taskraft_pipeline.cli import pipeline

if __name__ == "__main__":
    pipeline(prog_name="taskraft pipeline")
