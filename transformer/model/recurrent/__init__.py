"""Recurrent encoders and decoders in place of the Transformer's."""
