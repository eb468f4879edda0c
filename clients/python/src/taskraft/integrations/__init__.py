"""Use an app of `taskraft.worker` in web frameworks; each module needs the extra of its name."""
