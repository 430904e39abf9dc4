"""Optimizers, learning rate schedules [5.3], and their config keys.

Numbers in brackets are sections of "Attention Is All You Need" (Vaswani et al. 2017).
"""

import dataclasses

from transformer.model.config import BELOW_ONE, NOT_NEGATIVE, POSITIVE, key


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """The keys of `config.optimizer`, which control the parameter updates [5.3]."""

    # adam [5.3] | adamw (Loshchilov and Hutter 2019) | lion (Chen et al. 2023), at 1/10 to 1/3 of
    # Adam's rates | muon (Jordan et al. 2024) for kernels, adamw for the rest, at Adam's rates (Liu
    # et al. 2025) | adafactor (Shazeer and Stern 2018), at rates relative to the RMS of a
    # parameter, at most 0.01 in the paper; without beta1, beta2 and epsilon
    name: str = key("adam", facts="peers", choices=("adam", "adamw", "lion", "muon", "adafactor"))
    beta1: float = key(0.9, BELOW_ONE, "peers")  # [5.3]
    beta2: float = key(0.98, BELOW_ONE, "peers")  # [5.3]
    epsilon: float = key(1e-9, (1e-15, 1), "peers")  # [5.3]
    muon_momentum: float = key(0.95, BELOW_ONE)  # muon: momentum for kernels
    # decoupled, multiplied by the learning rate; not used by adam
    weight_decay: float = key(0.0, NOT_NEGATIVE, "traced peers")
    # maximum global norm of the gradient; 0 disables clipping
    clip_norm: float = key(0.0, NOT_NEGATIVE, "peers work")
    # noam [5.3, eq. 3] | inverse_sqrt | constant | cosine | linear | wsd (Hägele et al. 2024); the
    # last three decay to zero at the last step, set by train.steps or train.epochs
    schedule: str = key("noam", choices="transformer.optim.schedules.SCHEDULES")
    # wsd: fraction of the updates over which the learning rate decays
    decay_fraction: float = key(0.2, (0, 1), "traced")
    # noam: a factor; other schedules: the peak learning rate
    learning_rate: float = key(1.0, NOT_NEGATIVE, "traced recipe")
    warmup_steps: int = key(4000, NOT_NEGATIVE, "traced recipe")  # number of updates [5.3]
    # batches per update; all tokens have the same weight
    gradient_accumulation_steps: int = key(1, POSITIVE, "recipe work")
