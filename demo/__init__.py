"""Demonstrate the whole product: three nodes, real tasks, a killed leader, and a verdict."""
