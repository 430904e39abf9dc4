"""The metrics: titles, formats, directions, and the places that show them.

A metric is an entry here and a function that computes it: for translations in `metrics.text`, for
other tasks in the task itself.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping

# Places that show metrics: the table of a run's results, the log line of an evaluation in training,
# and the tables of sweeps. A report shows every number of the results.
TABLE, PROGRESS, SWEEPS = "table", "progress", "sweeps"
EVERYWHERE = (TABLE, PROGRESS, SWEEPS)
# Panels of the training curves, with the label of their y axis.
LOSSES, SCORES, ACCURACIES = "loss (nats)", "score (0 to 100)", "accuracy (0 to 1)"
PANELS = (LOSSES, SCORES, ACCURACIES)
COUNTS = ("sentences", "tokens", "texts")  # the units that scores are averaged over
MIN_TEXTS = 4  # to resample: one of three is drawn thrice in 3.7%, more than a tail of 2.5%
NORMAL = 1.959963984540054  # 97.5% quantile of the normal distribution


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric of an evaluation.

    Attributes:
      name: its key in `results.json` and `metrics.jsonl`, and its name in `train.best_metric`.
      title: its displayed name.
      unit: unit of the displayed number.
      higher_is_better: direction of the metric, to compare checkpoints and settings.
      scale: factor from the number in the files to the displayed one.
      format: format of the displayed number in the tables of sweeps and reports.
      panel: panel of the training curves, one of `PANELS`; empty if it is not drawn.
      shown: the places that show it.
      heading: heading of its column in the tables of sweeps and reports; by default title and unit.
      about: a sentence below the table of a sweep.
      final: whether only final scores include it, since it is slow.
    """

    name: str
    title: str
    unit: str = ""
    higher_is_better: bool = True
    scale: float = 1.0
    format: str = ",.2f"
    panel: str = ""
    shown: tuple[str, ...] = EVERYWHERE
    heading: str = ""
    about: str = ""
    final: bool = False

    @property
    def label(self) -> str:
        """Title and unit, for an axis."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    @property
    def column(self) -> str:
        """The heading of its column."""
        return self.heading or self.label


def _loss_metric(name: str, title: str, unit: str = "", **others) -> Metric:
    """Returns a metric for which lower is better."""
    return Metric(name, title, unit, higher_is_better=False, **others)


def _percent_metric(name: str, title: str, **others) -> Metric:
    """Returns a metric that is a fraction, shown in percent."""
    return Metric(name, title, "%", scale=100.0, **others)


_NLL = _loss_metric("nll", "nll", "nats", format=",.4f", panel=LOSSES, shown=())
_LOSS = _loss_metric("loss", "loss", "nats", format=",.4f", panel=LOSSES, shown=(PROGRESS,))
_PERPLEXITY = _loss_metric("perplexity", "perplexity", format=",.3f", shown=(TABLE, PROGRESS))
_ACCURACY = _percent_metric("accuracy", "accuracy", panel=ACCURACIES)
_CLASSES = (
    _LOSS,
    _ACCURACY,
    _percent_metric(
        "macro_f1",
        "macro F1",
        panel=ACCURACIES,
        shown=(TABLE, SWEEPS),
        about="macro F1: the mean F1 of the classes that a text has or is predicted to have, as "
        "in scikit-learn.",
    ),
    _percent_metric(
        "auc",
        "AUC",
        shown=(TABLE, SWEEPS),
        about="AUC: the area under the ROC curve of a class against the others, the mean over the "
        "classes; 50% is chance.",
    ),
    dataclasses.replace(
        _NLL,
        shown=(TABLE, SWEEPS),
        about="nll: the mean negative log-likelihood of the true label; lower is better.",
    ),
    _percent_metric(
        "ece",
        "ECE",
        higher_is_better=False,
        shown=(TABLE, SWEEPS),
        about="ECE: the expected calibration error, the mean gap between the "
        "confidence of predictions and their accuracy; lower is better.",
    ),
)

_TRANSLATIONS = (
    _NLL,
    _LOSS,
    _PERPLEXITY,
    _loss_metric("bits_per_byte", "bits/byte", format=",.4f", shown=(TABLE,), final=True),
    dataclasses.replace(_ACCURACY, shown=(TABLE, PROGRESS), heading="token accuracy (%)"),
    Metric("bleu", "BLEU", panel=SCORES),
    Metric("bleu_moses_lowercase", "BLEU, Moses lowercase", shown=(TABLE, SWEEPS)),
    Metric("chrf", "chrF", panel=SCORES),
    _loss_metric("ter", "TER", shown=(TABLE,), final=True),
    Metric("exact_match", "exact matches", "%", heading="exact (%)"),
    _percent_metric(
        "degenerate",
        "degenerate",
        higher_is_better=False,
        shown=(TABLE, SWEEPS),
        about="degenerate: translations that are empty, that have a phrase three times in a "
        "row, or that only the length limit ended; lower is better.",
        final=True,
    ),
    # For a perturbed copy of a test set: its BLEU over that of the unperturbed sentences.
    Metric("clean_ratio", "ratio to clean", format=",.3f", shown=(TABLE,), final=True),
)

# Metrics by scored output, which a task names, in the order of tables.
REGISTRY: dict[str, tuple[Metric, ...]] = {
    "translations": _TRANSLATIONS,
    "texts": (
        _LOSS,
        dataclasses.replace(
            _PERPLEXITY,
            shown=EVERYWHERE,
            about="nll: the mean negative log-likelihood of a token; perplexity: exp(nll); "
            "accuracy: the fraction of tokens that were the most probable. Lower is better, except "
            "of accuracy.",
        ),
        _loss_metric("word_perplexity", "word perplexity", shown=(TABLE, SWEEPS)),
        _loss_metric("bits_per_byte", "bits/byte", format=",.4f", shown=(TABLE, SWEEPS)),
        dataclasses.replace(_NLL, shown=(SWEEPS,)),
        _ACCURACY,
    ),
    "classes": _CLASSES,
}


def metrics_of(scored: str, place: str = "") -> dict[str, Metric]:
    """Returns metrics of `REGISTRY` by name, in the order of tables: all, or those of a place."""
    return {m.name: m for m in REGISTRY[scored] if not place or place in m.shown}


def select(fits: Callable[[Metric], bool]) -> dict[str, Metric]:
    """Returns the matching metrics of all tasks, by name."""
    metrics: dict[str, Metric] = {}
    for metric in filter(fits, itertools.chain(*REGISTRY.values())):
        metrics.setdefault(metric.name, metric)
    return metrics


def find(name: str, scored: str = "") -> Metric:
    """Returns the metric of this name, for one task or any; for an unknown name, a default."""
    metrics = metrics_of(scored) if scored else select(lambda metric: True)
    return metrics.get(name) or Metric(name, name.replace("_", " "))


def proportion_interval(successes: int, trials: int, scale: float = 1.0) -> list[float]:
    """Returns the bounds of the 95% interval of a proportion, which may be 0 or 1, times `scale`.

    Source: Wilson 1927, "Probable inference, the law of succession, and statistical inference".
    """
    square, mean = NORMAL**2 / trials, successes / trials
    centre = (mean + square / 2) / (1 + square)
    half = math.sqrt(mean * (1 - mean) * square + square**2 / 4) / (1 + square)
    return [scale * max(0.0, centre - half), scale * min(1.0, centre + half)]


def rank(scores: Mapping[str, float], metric: str) -> tuple[float, float]:
    """Returns the sort key of evaluations, runs and weights; the greatest is the best.

    The loss breaks ties of the metric; a score that is missing or not finite is the worst.
    """

    def signed(name: str) -> float:
        value = scores.get(name, math.nan)
        upward = value if find(name).higher_is_better else -value
        return upward if math.isfinite(value) else -math.inf

    return signed(metric), signed("loss")
