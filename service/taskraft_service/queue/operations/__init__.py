"""Operations: what producers, consumers and administrators do to tasks."""
