"""A web shop: FastAPI takes orders, and tasks charge the customer and send the confirmation."""
