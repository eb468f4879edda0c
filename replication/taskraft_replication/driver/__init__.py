"""Convert the core's ``Ready`` into work for disk, network and state machine, without I/O."""
