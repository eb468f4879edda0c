"""Say who belongs to a group, from its founding on."""
