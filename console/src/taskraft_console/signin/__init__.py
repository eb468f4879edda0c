"""Sign-in: who visits the console, and with which credentials the console calls the cluster."""
