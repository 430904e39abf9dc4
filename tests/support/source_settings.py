"""Settings of a source of pairs or of labelled texts, and what a refusal of them must look like."""

import contextlib

import pytest
from ml_collections import ConfigDict

from transformer.errors import UserError

DEFAULTS = {
    "source": "files",
    "seed": 0,
    "train_size": 0,
    "validation_size": 0,
    "test_size": 0,
    "length_generalization_size": 0,
    "path": "",
    "fetch": "",
    "cache_dir": "",
    "train_source": "train.de",
    "train_target": "train.en",
    "validation_source": "",
    "validation_target": "",
    "test_source": "",
    "test_target": "",
    "source_field": "0",
    "target_field": "1",
    "separator": "",
    "quote": "",
    "holdout": "hash",
    "text_field": "text",
    "label_field": "label",
    "skip_broken": False,
    "max_characters": 2000,
    "max_length_ratio": 1e9,
    "remove_duplicates": True,
    "remove_near_duplicates": False,
    "languages": ("", ""),
    "min_language_ratio": 0.05,
    "min_script_fraction": 0.0,
    "remove_copies": False,
    "remove_mojibake": False,
    "match_numbers": False,
    "train_subset": 0,
    "tfds_name": "ted_hrlr_translate/ru_to_en",
    "tfds_fields": ("ru", "en"),
    "tfds_dir": "",
    "tfds_train": "train",
    "tfds_validation": "validation",
    "tfds_test": "test",
}


def settings(**changes) -> ConfigDict:
    """Settings with some keys changed."""
    return ConfigDict({**DEFAULTS, **changes})


@contextlib.contextmanager
def refused(*parts):
    """Expects a UserError of one line that holds every part."""
    with pytest.raises(UserError) as error:
        yield error
    message = str(error.value)
    assert "\n" not in message
    assert [part for part in parts if str(part) not in message] == [], message
