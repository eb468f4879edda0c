"""The pages, one module each: read the address, ask the cluster, return values for the template."""
