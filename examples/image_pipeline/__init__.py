"""An image pipeline: pictures are scaled in processes, and combined on a contact sheet."""
