"""Recurrent encoders and decoders, an alternative to the Transformer's."""
