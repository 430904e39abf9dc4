"""Text in files: formats, compression and encodings."""
