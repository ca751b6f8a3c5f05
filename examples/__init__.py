"""Small programs to start one's own from."""
