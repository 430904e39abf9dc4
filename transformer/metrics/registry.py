"""The metric registry: titles, formats, directions, and where metrics are shown.

Each metric has an entry here, and a function that computes it: in `metrics.text` for translation,
and in the task's module for other tasks.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping

# Where metrics are shown: in the results table of a run, in the log line of an evaluation during
# training, and in the tables of sweeps. Reports show all metrics.
TABLE, PROGRESS, SWEEPS = "table", "progress", "sweeps"
EVERYWHERE = (TABLE, PROGRESS, SWEEPS)
# Subplots of the training curves, named after their y-axis labels.
LOSSES, SCORES, ACCURACIES = "loss (nats)", "score (0 to 100)", "accuracy (0 to 1)"
PANELS = (LOSSES, SCORES, ACCURACIES)
COUNTS = ("sentences", "tokens", "texts")  # units over which scores are averaged
MIN_TEXTS = 4  # for the bootstrap; with 3, 3.7% (> 2.5%) of resamples contain only the worst text


@dataclasses.dataclass(frozen=True)
class Metric:
    """An evaluation metric.

    Attributes:
      name: key in `results.json` and `metrics.jsonl`, and value of `train.best_metric`.
      title: displayed name.
      unit: unit of the displayed value.
      higher_is_better: whether higher is better, for comparing checkpoints and settings.
      scale: factor that converts a stored value to a displayed value.
      format: format of the displayed value in the tables of sweeps and reports.
      panel: subplot of the training curves, one of `PANELS`, or '' if the metric is not plotted.
      shown: where the metric is shown, a subset of `EVERYWHERE`.
      heading: column heading in the tables of sweeps and reports; by default, title and unit.
      about: explanation below the table of a sweep.
      final: whether the metric is only computed for final scores, because it is slow.
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
        """The column heading in tables."""
        return self.heading or self.label


_loss_metric = functools.partial(Metric, higher_is_better=False)
# A fraction that is displayed as a percentage.
_percent_metric = functools.partial(Metric, unit="%", scale=100.0)

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
    # The BLEU on a perturbed copy of a test set divided by the BLEU on the original.
    Metric("clean_ratio", "ratio to clean", format=",.3f", shown=(TABLE,), final=True),
)

# The metrics for each value of `Task.metrics`, in the order in which tables show them.
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
    """Returns `REGISTRY[scored]`, keyed by name, or only the metrics that are shown in `place`."""
    return {m.name: m for m in REGISTRY[scored] if not place or place in m.shown}


def select(fits: Callable[[Metric], bool]) -> dict[str, Metric]:
    """Returns the metrics of all tasks for which `fits` is true, keyed by name."""
    metrics: dict[str, Metric] = {}
    for metric in filter(fits, itertools.chain(*REGISTRY.values())):
        metrics.setdefault(metric.name, metric)
    return metrics


def find(name: str, scored: str = "") -> Metric:
    """Returns the metric with this name, from `REGISTRY[scored]` or all tasks, or a default."""
    metrics = metrics_of(scored) if scored else select(lambda metric: True)
    return metrics.get(name) or Metric(name, name.replace("_", " "))


def proportion_interval(successes: int, trials: int, scale: float = 1.0) -> list[float]:
    """Returns the scaled bounds of a proportion's 95% interval, which is also valid for 0 and 1.

    Source: Wilson 1927, "Probable inference, the law of succession, and statistical inference".
    """
    from scipy.stats import binomtest  # takes half a second to import

    bounds = binomtest(successes, trials).proportion_ci(method="wilson")
    return [float(scale * bounds.low), float(scale * bounds.high)]


def rank(scores: Mapping[str, float], metric: str) -> tuple[float, float]:
    """Returns the sort key for comparing evaluations, runs or checkpoints; higher is better.

    Ties are broken by the loss. A score that is missing or not finite is ranked worst.
    """

    def signed(name: str) -> float:
        value = scores.get(name, math.nan)
        upward = value if find(name).higher_is_better else -value
        return upward if math.isfinite(value) else -math.inf

    return signed(metric), signed("loss")
