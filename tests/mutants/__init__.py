"""Break the product on purpose, one place at a time, and show which test notices."""
