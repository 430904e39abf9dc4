"""chrF between all pairs of texts, for minimum Bayes risk decoding."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

ORDER, BETA = 6, 2.0  # sacreBLEU's defaults


def mean_chrf(texts: Sequence[str]) -> list[float]:
    """Returns the mean chrF (0 to 100) of each text, with each of the other texts as reference.

    Source: Popović 2015, with the counts and averages of sacreBLEU's sentence-level chrF.
    """
    lines, sums, orders = ["".join(text.split()) for text in texts], np.zeros((2, 1, 1)), 0
    for n in range(1, ORDER + 1):
        columns: dict[tuple[str, int], int] = {}  # of each occurrence of each n-gram in a text
        rows = []
        for line in lines:
            counts: Counter[str] = Counter()
            rows.append([])
            for gram in (line[i : i + n] for i in range(len(line) - n + 1)):
                counts[gram] += 1
                rows[-1].append(columns.setdefault((gram, counts[gram]), len(columns)))
        has = np.zeros((len(lines), len(columns)), np.float32)
        for row, places in zip(has, rows, strict=True):
            row[places] = 1
        matches, total = has @ has.T, np.maximum(has.sum(axis=1, keepdims=True), 1)
        sums = sums + np.stack([matches / total, matches / total.T])
        orders = orders + (has.any(axis=1) & has.any(axis=1)[:, None])
    precision, recall = sums / np.maximum(orders, 1)
    weighted = np.maximum(BETA**2 * precision + recall, 1e-16)
    scores = 100 * (1 + BETA**2) * precision * recall / weighted
    np.fill_diagonal(scores, 0)
    return (scores.sum(axis=1) / max(1, len(texts) - 1)).tolist()
