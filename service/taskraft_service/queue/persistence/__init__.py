"""Write the queue state to the store, open the stored state, and compute its digest."""
