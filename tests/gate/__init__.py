"""Run all tests in two stages, and tell a late test from a wrong one."""
