"""Command line programs: `scripts.train` and `scripts.compare`."""
