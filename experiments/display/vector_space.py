"""Two-dimensional projections of vectors, and their nearest neighbours."""

import numpy as np
from jaxtyping import Float, Int
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

PERPLEXITY = 30.0


def perplexity(count: int) -> float:
    """Returns the t-SNE perplexity for `count` points."""
    return min(PERPLEXITY, (count - 1) / 3)  # a larger value would make all points neighbours


def tsne(vectors: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N 2"]:
    """Returns the t-SNE projection of vectors, in which similar vectors are close together.

    Large distances and the axes are not meaningful.

    Source: van der Maaten and Hinton 2008, "Visualizing Data using t-SNE".
    """
    machine = TSNE(perplexity=perplexity(len(vectors)), init="pca", random_state=0)
    # Threads are synchronised in each of a thousand iterations. When other processes were running,
    # two threads took five times as long as one.
    with threadpool_limits(1, user_api="openmp"):
        return machine.fit_transform(vectors)


def pca(
    vectors: Float[np.ndarray, "N D"],
) -> tuple[Float[np.ndarray, "N 2"], Float[np.ndarray, "2"]]:
    """Returns the first two principal components, and their explained variance ratios."""
    machine = PCA(2, svd_solver="full")
    points = machine.fit_transform(vectors)
    return points, machine.explained_variance_ratio_


def neighbours(
    vectors: Float[np.ndarray, "N D"], count: int
) -> tuple[Int[np.ndarray, "N count"], Float[np.ndarray, "N count"]]:
    """Returns the nearest neighbours of each vector by cosine similarity, and the cosines."""
    search = NearestNeighbors(n_neighbors=min(count, len(vectors) - 1), metric="cosine")
    distances, nearest = search.fit(vectors).kneighbors()
    return nearest, 1 - distances
