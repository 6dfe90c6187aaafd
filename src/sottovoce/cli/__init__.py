"""The command `sottovoce`: one file a verb; each only reads arguments, calls the library and shows the result."""
