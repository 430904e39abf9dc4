"""Settings of a source of pairs or of labelled texts, and what a refusal of them must look like."""

import contextlib

import pytest
from ml_collections import ConfigDict

from configs import base
from transformer.errors import UserError

CHANGES = {
    "source": "files",
    "train_size": 0,
    "validation_size": 0,
    "test_size": 0,
    "train_source": "train.de",
    "train_target": "train.en",
    "max_length_ratio": 1e9,
    "tfds_name": "ted_hrlr_translate/ru_to_en",
    "tfds_fields": ("ru", "en"),
}


def settings(**changes) -> ConfigDict:
    """The settings of every config, with some keys changed."""
    return ConfigDict({**base.get_config().data, **CHANGES, **changes})


@contextlib.contextmanager
def refused(*parts):
    """Expects a UserError of one line that holds every part."""
    with pytest.raises(UserError) as error:
        yield error
    message = str(error.value)
    assert "\n" not in message
    assert [part for part in parts if str(part) not in message] == [], message
