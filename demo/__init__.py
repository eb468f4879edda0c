"""Show the whole product at work: three nodes, real tasks, a killed leader, and a verdict."""
