"""Data files: formats, compression and encodings."""
