"""sottovoce."""
