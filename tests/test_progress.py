"""What is printed before and during a run."""

import numpy as np

from conftest import tiny_model
from transformer.progress import parameter_table


def test_the_parameters_are_counted_by_part_and_the_layers_of_a_stack_together():
    params = {
        "decoder_layers_0": {"a": np.zeros((30, 40)), "b": {"c": np.zeros(5)}},
        "decoder_layers_1": {"a": np.zeros((30, 40)), "b": {"c": np.zeros(5)}},
        "norm": {"scale": np.zeros(7)},
    }
    assert parameter_table(params).splitlines() == [
        "decoder_layers (2)  2,410",
        "norm                    7",
        "all parameters      2,417",
    ]


def test_the_parts_of_a_model_add_up_to_all_its_parameters():
    _, variables = tiny_model(num_encoder_layers=3)
    *parts, total = parameter_table(variables["params"]).splitlines()
    assert any(line.startswith("encoder_layers (3) ") for line in parts)
    counts = [int(line.split()[-1].replace(",", "")) for line in (*parts, total)]
    assert sum(counts[:-1]) == counts[-1] > 0
