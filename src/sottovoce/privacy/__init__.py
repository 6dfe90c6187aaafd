"""What is released, what it costs, and against whom: `Release` yields both the draws and the accounting event."""
