# %% [markdown]
# # What heads do
#
# Three questions about the attention heads of a translation model: where do they attend, do they
# align words, and what does the model lose without them? `RUN` is the quickstart of this package,
# which has two layers of four heads, or the folder of a run of this grammar that you have trained.

# %%
import matplotlib.pyplot as plt
import numpy as np

import transformer
from transformer.analysis.alignment import GoldLinks, alignment_scores
from transformer.data.parallel.sources import open_source
from transformer.files import import_sibling
from transformer.inference import interventions
from transformer.tasks.pair_text import snapshot_of_pairs
from transformer.tasks.translation import TranslationTask

alignment = import_sibling("experiments.heads.alignment")
effects_of = import_sibling("experiments.heads.effects")
links = import_sibling("experiments.heads.links")
plotting = import_sibling("experiments.display.plotting")

RUN = "quickstart"
run = transformer.load(RUN, {"evaluate.max_sentences": 25})
translator, variables = run.trained.predictor, run.trained.variables
pairs = open_source(run.config.data)["test"][:100]  # none is in the training data

# %% [markdown]
# ## Where do they attend?
#
# A row is a query, and its weights sum to 1. In the decoder, a row is the step that writes a token;
# the columns are the tokens that it reads. Choose a head, or see it as lines.

# %%
run.attention(pairs[0].source)

# %% [markdown]
# Means over 100 sentences: relative entropy is 0 if each query attends to one token, and 1 if it
# attends to all tokens equally; diagonality is 1 if the weight lies on the diagonal; the end
# fraction is the weight on the end-of-sentence token, where a head may rest that finds nothing.

# %%
statistics = snapshot_of_pairs(translator, pairs, run.config, translator.max_length)(variables)
names, kinds = ("relative_entropy", "diagonality", "end_fraction"), ("encoder_self", "cross")
figure, panels = plt.subplots(2, 3, figsize=(8, 3.6), layout="constrained")
for (i, j), axes in np.ndenumerate(panels):
    values = statistics.arrays[f"statistics/{kinds[i]}/{names[j]}"]
    plotting.heat_map(axes, values, np.vectorize("{:.2f}".format)(values))
    axes.set_title(f"{kinds[i]}: {names[j]}".replace("_", " "), fontsize=9)
    axes.set(xlabel="head", ylabel="layer")
    for axis, count in zip((axes.yaxis, axes.xaxis), values.shape, strict=True):
        axis.set_ticks(range(count), labels=range(1, count + 1))

# %% [markdown]
# ## Do they align words?
#
# The grammar knows which words translate each other: the sure links S. The links A of a head are,
# for each German word, the English word with the largest weight. Och and Ney 2003 score them by
#
#     AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)
#
# where P also has possible links; here, P = S. Training never sees a link. "By output" uses the
# step that writes the German word, "by input" the next step, which reads it. The baseline links
# each German word to the English word at the same relative position.

# %%
gold = [GoldLinks(pair.alignment) for pair in pairs]
heads = links.score_heads(run.trained, pairs, gold, done=lambda count: None)
best = links.best_of(heads.scores)
lengths = [[len(text.split()) for text in (pair.source, pair.target)] for pair in pairs]
diagonal = (np.eye(source)[np.arange(target) * source // target] for source, target in lengths)
print(f"AER {heads.scores[best].error_rate:.3f}: {best}")
print(f"AER {alignment_scores(diagonal, gold).error_rate:.3f}: diagonal")
alignment.rates_figure(heads.scores)

# %%
alignment.links_figure(pairs, gold, heads)

# %% [markdown]
# ## What does the model lose without them?
#
# Michel et al. 2019 multiply the output of each head by a gate of 1. The gradient of the loss with
# respect to the gates estimates the importance of all heads in one backward pass. Ablation sets one
# gate to 0 and computes the loss, and the BLEU of 25 greedy translations, again.

# %%
task = TranslationTask.from_folder(run.folder, run.config, pairs)
task.predictor = translator
heads = interventions.select(["*.head.*.output"], translator.model)
effects = effects_of.measure_effects(task, variables, heads, "zero", done=lambda count: None)
correlation = effects_of.rank_correlation(effects.column("importance"), effects.column("loss"))
print(f"rank correlation of importance and change of loss: {correlation:.2f}")
effects_of.build_figure(effects)

# %% [markdown]
# How does the model translate without the heads whose ablation changes the loss most and least? Of
# 25 translations, the cells print how many change, and the first three of these.

# %%
sources = [pair.source for pair in pairs[:25]]
intact = run.translate(sources)
least, *_, most = sorted(effects.changes, key=lambda head: effects.changes[head]["loss"])
for head in (most, least):
    with run.intervene({head: "zero"}):
        texts = run.translate(sources)
    changed = [both for both in zip(sources, intact, texts, strict=True) if both[1] != both[2]]
    print(f"\nwithout {head}: {len(changed)} of 25 change")
    for source, before, after in changed[:3]:
        print(f"  {source}\n    with it:    {before}\n    without it: {after}")
