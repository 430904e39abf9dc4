"""A tiny run that answers questions about scenes."""

from tiny_run import command

CONFIG = """
from configs import scenes_vqa

def get_config():
    config = scenes_vqa.get_config()
    config.model.d_model = 16
    config.model.d_ff = 16
    config.model.num_heads = 2
    config.model.num_encoder_layers = 1
    config.data.train_size = 120
    config.data.validation_size = 24
    config.data.test_size = 30
    config.data.batch_tokens = 512
    config.data.num_buckets = 2
    config.data.cache_dir = "PATH/cache"
    config.train.steps = 12
    config.train.log_every = 6
    config.train.evaluate_every = 6
    config.optimizer.warmup_steps = 1
    config.decode.batch_size = 8
    config.evaluate.bootstrap = 10
    config.evaluate.checkpoint = "last"
    config.evaluate.snapshot_statistics = 4
    return config
"""


def train_scenes(folder, config=CONFIG):
    """Trains a run in `folder/run` with `folder/config.py`."""
    (folder / "config.py").write_text(config.replace("PATH", str(folder)))
    ended = command(f"--config={folder / 'config.py'}", f"--workdir={folder / 'run'}")
    assert ended.code == 0, ended.err
