"""The default values of all config keys, which are defined in `transformer/config/`.

Override them on the command line (`--config.model.num_heads=4`) or in a config file:

    from transformer.config import default_config

    def get_config():
        config = default_config()
        config.model.num_heads = 4
        return config
"""

from transformer.config import default_config as get_config

__all__ = ["get_config"]
