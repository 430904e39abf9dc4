"""The recipe "size" for translation: settings for each number of training pairs.

`experiments/process/recipe.py` selects the row whose number of pairs is closest on a log scale.
Keys that are not listed have their values in `configs/own_text.py`, such as pre-norm, the schedule
inverse_sqrt and one joint vocabulary. The comment above each row cites its sources;
docs/results/corpus_size.md has the measurements.
"""

# The config keys that the values of a row set; the keys of a tuple share one value.
KEYS = (
    ("model.d_model",),
    ("model.d_ff",),
    ("model.num_heads",),
    ("model.num_encoder_layers", "model.num_decoder_layers"),
    ("model.dropout_embedding", "model.dropout_residual"),
    ("tokenizer.vocab_size",),
    ("data.batch_tokens",),
    ("optimizer.gradient_accumulation_steps",),
    ("optimizer.learning_rate",),
    ("optimizer.warmup_steps",),
    ("train.epochs",),
    ("train.steps",),
    ("train.evaluate_every",),
    ("train.label_smoothing",),
    ("train.patience",),
    ("evaluate.average_last_n",),
)
# Sizes that are each limited to a tenth of a small corpus, so that at most a fifth is held out.
HELD_OUT = ("data.validation_size", "data.test_size")
COLUMNS = ()
UNIT = "pairs"
LIMIT = 1_000_000  # steps; never reached, since training ends after the number of epochs

# {training pairs: (the reason in one line, a value for each of KEYS)}
ROWS = {
    # Sennrich and Zhang 2019 (5,000 sentences and more; recurrent models) use 2,000 subwords and
    # batches of 1,000 tokens; Araabi and Monz 2020 (5,000 sentences) dropout 0.3, fewer layers and
    # heads, a smaller d_ff, and strong label smoothing. This model is smaller, with less smoothing.
    # An epoch has only about 25 batches: after 20 epochs of 2,000 pairs, little had been learnt.
    1_000: (
        "a small model, 2,000 subwords, small batches and high dropout, as for 5,000 sentences in "
        "Sennrich and Zhang 2019 and in Araabi and Monz 2020",
        (128, 256, 4, 2, 0.3, 2000, 1024, 1, 2e-3, 400, 200, LIMIT, 200, 0.2, 10, 5),
    ),
    # The sources are those of the row above.
    3_000: (
        "a small model, 2,000 subwords, small batches and high dropout, as for 5,000 sentences in "
        "Sennrich and Zhang 2019 and in Araabi and Monz 2020",
        (128, 256, 4, 3, 0.3, 2000, 1024, 1, 2e-3, 400, 100, LIMIT, 300, 0.2, 10, 5),
    ),
    # The model is that of the next row. The vocabulary size is between those of Sennrich and Zhang
    # (2,000) and of Araabi and Monz (10,000 merges).
    10_000: (
        "the model of Multi30k (Wu et al. 2021) with fewer subwords and smaller batches, as in "
        "Sennrich and Zhang 2019",
        (128, 256, 4, 4, 0.3, 4000, 2048, 1, 2e-3, 800, 80, LIMIT, 400, 0.1, 10, 5),
    ),
    # On Multi30k (29,000 pairs), this model reached 41.02 BLEU in Wu et al. 2021, and larger models
    # overfit (39.68 and 38.33). Our run with this row's model, dropout, vocabulary and batch size
    # reached 39.2 after 5,000 steps of a different schedule (docs/results/multi30k.md).
    30_000: (
        "the model of Multi30k (29,000 pairs): larger ones overfit (Wu et al. 2021)",
        (128, 256, 4, 4, 0.3, 6000, 4096, 1, 4e-3, 1000, 60, LIMIT, 0, 0.1, 10, 5),
    ),
    # Interpolated between the adjacent rows. For 40,000 sentences, Araabi and Monz use 12,000
    # merges, 5 layers, dropout 0.3 and batches of 4,096 tokens.
    50_000: (
        "between the models of Multi30k (29,000 pairs) and of IWSLT14 (160,000)",
        (256, 1024, 4, 4, 0.3, 8000, 4096, 1, 1e-3, 1000, 40, LIMIT, 0, 0.1, 5, 5),
    ),
    # fairseq's transformer_iwslt_de_en for the 160,000 pairs of IWSLT14, with its learning rate,
    # warm-up, dropout, label smoothing and batch size.
    200_000: (
        "fairseq's model of IWSLT14 (160,000 pairs)",
        (512, 1024, 4, 6, 0.3, 10_000, 4096, 1, 5e-4, 4000, 40, LIMIT, 0, 0.1, 5, 5),
    ),
    # The base model with more dropout, and fewer tokens per update than in the next row. The peak
    # learning rate is that of Vaswani et al. 2017: 512^-0.5 * 4000^-0.5.
    1_000_000: (
        "the base model of Vaswani et al. 2017 with more dropout and fewer subwords",
        (512, 2048, 8, 6, 0.2, 16_000, 4096, 4, 7e-4, 4000, 30, LIMIT, 0, 0.1, 5, 5),
    ),
    # Vaswani et al. 2017 on 4.5 million pairs: 100,000 updates of 25,000 tokens, accumulated here
    # over batches of 4,096 tokens that fit into the memory of small devices.
    5_000_000: (
        "the base model of Vaswani et al. 2017 (4.5 million pairs)",
        (512, 2048, 8, 6, 0.1, 32_000, 4096, 6, 7e-4, 4000, 20, 600_000, 0, 0.1, 5, 5),
    ),
}
