"""The version of this package; `setup.py` reads it from here too."""

__version__ = '0.1.0'
