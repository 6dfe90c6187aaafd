"""Every algorithm that the paper names, as a complete spec made from public facts alone: one row of a table each."""
