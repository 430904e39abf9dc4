# %% [markdown]
# # A translator of your own text
#
# From a table of sentence pairs to a translator: look at the text, plan the training, train,
# translate a file, score it, and give the model to somebody as an HTML page. To use your own text,
# leave out the cell that writes `pairs.tsv`: each line has a sentence, a tab and its translation.

# %%
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt

import transformer
from transformer.config import assign, load_page
from transformer.data.synthetic.grammar import generate
from transformer.files import import_sibling
from transformer.runs.run import Run

# %% [markdown]
# ## The text
#
# Here, a grammar generates 10,000 English-German pairs, and 50 others to translate at the end.

# %%
splits = generate(seed=1, sizes={"train": 10_000, "test": 50})
with open("pairs.tsv", "w", encoding="utf-8") as file:
    file.writelines(f"{pair.source}\t{pair.target}\n" for pair in splits["train"])

# %% [markdown]
# Look at the text before you train on it: are the columns translations of each other, are lines
# repeated, are some much longer than others? `configs/own_text.py` also drops pairs that cannot be
# translations, such as copies of the source, and reports how many and why.

# %%
pairs = [line.split("\t") for line in Path("pairs.tsv").read_text("utf-8").splitlines()]
figure, axes = plt.subplots(figsize=(6, 2.4), layout="constrained")
axes.hist([[len(pair[side].split()) for pair in pairs] for side in (0, 1)], bins=range(3, 19))
axes.set(xlabel="words per sentence (blue: source, orange: target)", ylabel="pairs")
print(*("\t".join(pair) for pair in pairs[:3]), sep="\n")
words = [Counter(word for pair in pairs for word in pair[side].split()) for side in (0, 1)]
print(f"{len(pairs):,} pairs, {len(pairs) - len(set(map(tuple, pairs))):,} of them repeated")
print("different words:", *(f"{len(count):,}" for count in words))

# %% [markdown]
# ## The plan
#
# The recipe of `configs/own_text.py` selects the size of the model by the number of pairs, and
# trains for an hour or more. The settings below replace it by a small model and three minutes; to
# use the recipe, keep only the first three. The plan compiles the training step and measures it, so
# its times hold for this machine.

# %%
SETTINGS = {
    "data.path": ".",
    "data.train_source": "pairs.tsv",
    "data.train_target": "",
    "recipe": "none",
    "model.d_model": 128,
    "model.d_ff": 256,
    "model.num_encoder_layers": 2,
    "model.num_decoder_layers": 2,
    "tokenizer.vocab_size": 2000,
    "data.max_tokens": 32,
    "data.num_buckets": 3,
    "optimizer.learning_rate": 3e-3,
    "train.epochs": 0.0,
    "train.steps": 1000,
}
config = load_page("own_text").get_config()
for key, value in SETTINGS.items():
    assign(config, key, value)
import_sibling("experiments.benchmark.plan").plan(Run(Path("runs/own"), config))

# %% [markdown]
# ## Training
#
# A second call with the same folder resumes the run. `runs/own/report.html` has the scores, the
# curves, the worst translations and the attention maps.

# %% site="run = transformer.load('quickstart')"
run = transformer.train("configs/own_text.py", "runs/own", SETTINGS)

# %% [markdown]
# ## Translation
#
# Use sentences that are not in the training data: a good score on these says nothing.

# %%
sources, references = zip(*(pair[:2] for pair in splits["test"]), strict=True)
Path("letters.txt").write_text("\n".join(sources), encoding="utf-8")
translations = run.translate(Path("letters.txt").read_text("utf-8").splitlines())
Path("briefe.txt").write_text("\n".join(translations), encoding="utf-8")
for lines in list(zip(sources, translations, references, strict=True))[:3]:
    print(*lines, sep="\n", end="\n\n")
for translation in run.translate(sources[:1], num_best=3)[0]:
    print(f"{translation.score:.2f} {translation.text}")

# %% [markdown]
# BLEU (Papineni et al. 2002) counts n-grams of words that the translations share with the
# references, chrF (Popović 2015) those of characters; ± is half of a 95% bootstrap interval. Report
# the signature with a score: only scores with equal signatures are comparable.

# %%
scores = run.evaluate(sources, references)
for name in ("bleu", "chrf"):
    interval = scores.get(f"{name}_ci", float("nan"))
    print(f"{name} {scores[name]:.1f} ± {interval:.1f}, {scores[f'{name}_signature']}")

# %% [markdown]
# ## The page
#
# One HTML file has the model and shows every head. It needs no network: send it by mail.

# %%
for file in sorted(run.export("html", "page").iterdir()):
    print(f"{file.stat().st_size / 1e6:.1f} MB {file}")
