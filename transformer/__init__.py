"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017) in JAX and Flax.

Letters of dimensions, in jaxtyping signatures and einsum strings:

    B  batch                       D  width of the residual stream, d_model
    L  query or target length      H  attention heads
    M  key or source length        K  size of one head, d_model / num_heads
    V  vocabulary                  F  inner width of the feed-forward layer, d_ff
    P  hypotheses a sentence in beam search

Masks are boolean, True where a query may attend to a key. They are combined as booleans and
applied once, in `model.attention.masked_softmax`; a query that may attend to nothing
gets zeros.

Reading order, with the paper beside it:

    model/attention.py    3.2.1 scaled dot product, 3.2.2 multi-head attention, 3.2.3 masks
    model/layers.py       3.3 feed-forward, 3.4 embeddings, 5.4 dropout, 3.1 residual and norm
    model/positions.py    3.5 positional encoding
    model/stack.py        3.1 encoder and decoder layers
    model/transformer.py  3.1 the whole model; stepwise decoding
    model/gates.py        switching heads off, to see what each is worth
    model/recurrent.py    what it is compared with: cells.py and recurrent_attention.py beside it
    model/classifier.py   an encoder whose output is pooled; the mean of embeddings
    losses.py optim.py    5.3 optimizer, 5.4 label smoothing
    decode.py             6.1 beam search
    train.py              the loop, which knows no task; population.py: many runs as one
    data/packing.py       documents in rows of tokens; pipeline.py: pairs in batches of like length
    alignment.py          which words attend to which, scored against the truth
    head_statistics.py    what each head looks at, in a few numbers
    tasks/                how text becomes batches, losses and scores, and what a model is used for
"""
