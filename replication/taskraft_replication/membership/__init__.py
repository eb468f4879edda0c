"""Say who belongs to a group, and how that is written down."""
