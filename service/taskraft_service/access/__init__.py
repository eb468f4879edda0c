"""Authentication and authorization: principals, grants, and the permissions of each request."""
