# %% [markdown]
# # The paper in code
#
# The equations of [Attention Is All You Need](https://arxiv.org/abs/1706.03762) in NumPy, compared
# with the modules that implement them, and a training. The headings are the paper's sections.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from scipy.special import log_softmax, softmax

import transformer
from transformer.model import layers, losses, masks
from transformer.model.attention import MultiHeadAttention, scaled_dot_product_attention
from transformer.model.config import ModelConfig
from transformer.model.positions.registry import REGISTRY
from transformer.optim.schedules import learning_rate

normal = np.random.default_rng(0).standard_normal

# %% [markdown]
# ## 3.2.1 Scaled dot-product attention
#
#     Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V        (1)
#
# The scores of a query are its dot products with the keys. The softmax turns them into weights,
# which sum to 1, and the output is the weighted mean of the values.
#
# Why √d_k? If the components of q and k are independent, with mean 0 and variance 1, then q · k has
# variance d_k (footnote 4). Without the division, the largest weight w of a query approaches 1, and
# its derivative with respect to its score, w (1 - w), approaches 0.


# %%
def attention(q, k, v, mask=True):
    return softmax(np.where(mask, q @ k.T / np.sqrt(q.shape[-1]), -np.inf), axis=-1) @ v


q, k, v = (normal((length, 16), np.float32) for length in (5, 7, 7))
batch = [jnp.array(x)[None, :, None] for x in (q, k, v)]  # [sentence, token, head, component]
output, _ = scaled_dot_product_attention(*batch, mask=jnp.ones((1, 1, 1, 7), bool))
print("difference:", np.abs(output[0, :, 0] - attention(q, k, v)).max())
figure, axes = plt.subplots(figsize=(5, 2.2), layout="constrained")
axes.set(xlabel="d_k", ylabel="mean w (1 - w)", title="blue: q · k / √d_k; orange: q · k")
scores = {d: normal((200, d)) @ normal((d, 7)) for d in 2 ** np.arange(2, 11)}
for power in (0.5, 0):
    w = np.array([softmax(s / d**power, axis=1).max(axis=1) for d, s in scores.items()])
    axes.semilogx([*scores], (w * (1 - w)).mean(axis=1), "o-", base=2)

# %% [markdown]
# ## 3.2.3 Masks
#
# Masks set the scores of padding and, in the decoder, of later tokens to -∞. Gradients prove it:
# the derivative of output i with respect to key and value j is 0 where the mask is 0 (white).

# %%
places, q = jnp.arange(6), jnp.array(normal((1, 6, 1, 8), np.float32))
padding = masks.padding_mask(jnp.array([[True] * 5 + [False]]))  # the last token is padding
look_ahead = masks.look_ahead_mask(places, places)
all_masks = {"padding": padding, "look-ahead": look_ahead, "both": padding & look_ahead}
slope = jax.jacobian(lambda memory, mask: scaled_dot_product_attention(q, memory, memory, mask)[0])
figure, panels = plt.subplots(1, 6, figsize=(11, 2.2), layout="constrained")
for (name, mask), axes in zip(all_masks.items(), panels.reshape(3, 2), strict=True):
    slopes = np.abs(slope(q, mask)).sum(axis=(0, 2, 3, 4, 6, 7))  # [query, key]
    mask = np.broadcast_to(mask[0, 0], (6, 6))
    assert ((slopes > 0) == mask).all()
    for panel, title, values in zip(axes, (name, "gradient"), (mask, slopes), strict=True):
        panel.imshow(values, cmap="Blues", vmin=0)
        panel.set(title=title, xlabel="key", ylabel="query")

# %% [markdown]
# ## 3.2.2 Multi-head attention, 3.3 Feed-forward layers
#
#     MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O
#     head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)
#     FFN(x) = max(0, x W_1 + b_1) W_2 + b_2        (2)
#
# One matrix of shape [d_model, d_model] has the columns of W_i for all heads, d_k = d_model / h of
# each. The number of parameters is therefore the same for any number of heads. Biases start at 0.

# %%
config, key = ModelConfig(100, 100, d_model=32, num_heads=4, d_ff=64), jax.random.key(0)
x, inputs = normal((1, 6, 32), np.float32), masks.AttentionInputs(look_ahead, places, places)
module, y = MultiHeadAttention(config, encodings="none"), jnp.array(x)
output, variables = module.init_with_output(key, y, y, inputs)
w = {name: np.array(layer["kernel"]) for name, layer in variables["params"].items()}
print({name: kernel.shape for name, kernel in w.items()})
split = [np.split(x[0] @ w[name], 4, axis=1) for name in ("query", "key", "value")]
heads = [attention(*qkv, mask=look_ahead[0, 0]) for qkv in zip(*split, strict=True)]
print("difference:", np.abs(output[0] - np.concatenate(heads, axis=1) @ w["output"]).max())
output, variables = layers.FeedForward(config).init_with_output(key, y)
w = {name: np.array(layer["kernel"]) for name, layer in variables["params"].items()}
print("difference:", np.abs(output - np.maximum(0, x @ w["inner"]) @ w["outer"]).max())

# %% [markdown]
# ## 3.5 Positional encoding
#
#     PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i+1) = cos(pos / 10000^(2i / d_model))
#
# The paper interleaves sines and cosines; many implementations put all sines before all cosines.

# %%
angles = np.arange(50)[:, None] / 10_000 ** (np.arange(0, 32, 2) / 32)
waves = np.sin(angles), np.cos(angles)
written = {"sinusoidal": np.stack(waves, axis=2).reshape(50, 32), "split": np.hstack(waves)}
figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
for panel, (name, expected) in zip(axes, written.items(), strict=True):
    arguments = jnp.zeros((1, 50, 32)), jnp.arange(50)
    encoding = REGISTRY[name](config).apply({}, *arguments, method="add")[0]
    print("difference:", np.abs(encoding - expected).max())
    panel.imshow(encoding, cmap="RdBu", aspect="auto")
    panel.set(title=name, xlabel="component", ylabel="position")

# %% [markdown]
# ## 5.3 Learning rate, 5.4 Label smoothing
#
#     lrate = d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5)        (3)
#
# Label smoothing by ε = 0.1 gives the correct token a target probability of 1 - ε, and spreads ε
# evenly over all V tokens. `cross_entropy` computes this loss without one-hot vectors.

# %%
steps, hparams = np.arange(1, 20_001, 50), {"learning_rate": 1.0, "warmup_steps": 4000.0}
rates = [learning_rate("noam", int(step), hparams, d_model=512) for step in steps]
expected = 512**-0.5 * np.minimum(steps**-0.5, steps * 4000**-1.5)
figure, axes = plt.subplots(figsize=(5, 2.2), layout="constrained")
axes.set(xlabel="step", ylabel="learning rate", xticks=range(0, 20_001, 5000))
axes.plot(steps, rates)
x, table = normal((1, 1, 32), np.float32), normal((100, 32), np.float32)
batch = *map(jnp.array, (x, table, [[7]])), jnp.ones((1, 1))
loss = losses.cross_entropy(*batch, smoothing=0.1).loss
print("difference:", np.abs(np.subtract(rates, expected)).max())
print("difference:", abs(loss + (0.9 * np.eye(100)[7] + 0.1 / 100) @ log_softmax(table @ x[0, 0])))

# %% [markdown]
# ## 5 Training, 6.1 Translation
#
# The model has two layers of four heads; a small English-German grammar generates its 40,000 pairs.
# Training takes about three minutes on two cores. The maps show which source tokens (columns) each
# head of the last layer reads before the decoder writes a token (rows).

# %% site="run = transformer.load('quickstart')"
run = transformer.train("configs/quickstart.py", "runs/paper_in_code", {"train.steps": 900})

# %%
sentence = "My letter lay on this chair two days ago."
print(run.translate([sentence])[0], f"({run.results['test']['bleu']:.1f} BLEU on the test set)")
run.attention(sentence).figure("cross", layer=2)
