"""Command line programs: `python -m scripts.train`."""
