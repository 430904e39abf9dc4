"""A run's model with the weights that it was trained to have."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from transformer.inference.base import Predictor, Variables


@dataclasses.dataclass(frozen=True)
class TrainedRun:
    """What a run's folder gives to whoever uses its model.

    Attributes:
      predictor: the model in use.
      variables: what it is applied with, `{"params": ...}`.
      steps: of the checkpoints that the parameters are the mean of, or the only one.
      progress: how far the run had come, see `transformer.run.RunProgress`; empty if the folder
        does not say.
    """

    predictor: Predictor
    variables: Variables
    steps: Sequence[int] = ()
    progress: Mapping[str, Any] = dataclasses.field(default_factory=dict)
