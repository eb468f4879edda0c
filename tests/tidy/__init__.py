"""House rules that no linter knows. ``python -m tests.tidy`` prints all violations, rule by rule.

Each rule is a function without arguments that returns one line for each violation.
"""
