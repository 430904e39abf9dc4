"""Projections of vectors to two dimensions, and their nearest neighbours."""

import numpy as np
from jaxtyping import Float, Int
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits

PERPLEXITY = 30.0
ROWS_AT_ONCE = 512  # rows of the similarity matrix computed at once


def perplexity(count: int) -> float:
    """Returns the t-SNE perplexity for `count` points."""
    return min(PERPLEXITY, (count - 1) / 3)  # larger ones would make all points neighbours


def tsne(vectors: Float[np.ndarray, "N D"], seed: int = 0) -> Float[np.ndarray, "N 2"]:
    """Returns the t-SNE projection of vectors: near vectors have near points.

    Large distances and the axes have no meaning.

    Source: van der Maaten and Hinton 2008, "Visualizing Data using t-SNE".
    """
    machine = TSNE(perplexity=perplexity(len(vectors)), init="pca", random_state=seed)
    # One thread: threads wait for one another in each of a thousand iterations, and two took five
    # times as long as one if other processes were at work.
    with threadpool_limits(1, user_api="openmp"):
        return machine.fit_transform(vectors)


def pca(
    vectors: Float[np.ndarray, "N D"],
) -> tuple[Float[np.ndarray, "N 2"], Float[np.ndarray, "2"]]:
    """Returns the first two principal components, and the fraction of variance of each."""
    machine = PCA(2, svd_solver="full")
    points = machine.fit_transform(vectors)
    return points, machine.explained_variance_ratio_


def unit_rows(vectors: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
    """Returns the vectors scaled to unit length; a vector of zeros is unchanged."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)


def nearest(
    similarity: Float[np.ndarray, "R N"], count: int, first: int = 0
) -> Int[np.ndarray, "R count"]:
    """Returns the nearest others of each row, best first; `first` is the index of the first row."""
    others = similarity.copy()
    rows = np.arange(len(others))
    others[rows, first + rows] = -np.inf
    count = min(count, others.shape[1] - 1)
    # A complete sort would take most of the time.
    some = np.sort(np.argpartition(-others, count, axis=1)[:, :count], axis=1)
    order = np.argsort(-np.take_along_axis(others, some, axis=1), axis=1, kind="stable")
    return np.take_along_axis(some, order, axis=1)


def neighbours(
    vectors: Float[np.ndarray, "N D"], count: int, rows: range | None = None
) -> tuple[Int[np.ndarray, "R count"], Float[np.ndarray, "R count"]]:
    """Returns the nearest others of some or all vectors by cosine, and the cosines."""
    unit, rows = unit_rows(vectors), rows or range(len(vectors))
    closest, cosines = [], []
    for first in range(rows.start, rows.stop, ROWS_AT_ONCE):
        similarity = unit[first : min(first + ROWS_AT_ONCE, rows.stop)] @ unit.T
        closest.append(nearest(similarity, count, first))
        cosines.append(np.take_along_axis(similarity, closest[-1], axis=1))
    return np.concatenate(closest), np.concatenate(cosines)
