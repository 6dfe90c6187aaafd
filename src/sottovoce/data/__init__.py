"""Records from files, bundled sets and seeded generators, each as a `Table`."""
