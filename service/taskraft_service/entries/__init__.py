"""Write commands as entries of the log, and read them back."""
