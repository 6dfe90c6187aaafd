"""Real nodes: one process an owner, its own data, secret entropy, durable state, a ledger, and a network between."""
