"""All keys of an experiment with their defaults, which are in `transformer/config/`.

A config file, or the command line (`--config.model.num_heads=4`), changes some of them:

    from transformer.config import default_config

    def get_config():
        config = default_config()
        config.model.num_heads = 4
        return config
"""

from transformer.config import default_config as get_config

__all__ = ["get_config"]
