"""The recipe "size" for translators: training settings by the number of training pairs.

A corpus uses the row whose number is nearest on a logarithmic scale: `process/recipe.py`.
Keys that are not here have the values in `configs/own_text.py`: pre-norm, the schedule
inverse_sqrt, one joint vocabulary. The comment of each row names its sources;
docs/results/corpus_size.md has the measurements.
"""

# The keys that each column of a row sets.
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
# Sizes that are at most a tenth of a small text each, so that a fifth at most is held out.
HELD_OUT = ("data.validation_size", "data.test_size")
COLUMNS = ()
UNIT = "pairs"
LIMIT = 1_000_000  # steps; never reached, since the number of epochs ends the training

# {training pairs: (the reason in a line, a value for each of KEYS)}
ROWS = {
    # Sennrich and Zhang 2019 (5,000 sentences and more, recurrent): 2,000 subwords, batches of
    # 1,000 tokens. Araabi and Monz 2020 (5,000 sentences): dropout 0.3, fewer layers, heads and
    # inner units, much label smoothing; this row has a smaller model, and less smoothing. There are
    # many epochs, since each has about 25 batches: 20 epochs of 2,000 pairs learnt little here.
    1_000: (
        "a small model, 2,000 subwords, small batches and high dropout, as for 5,000 sentences in "
        "Sennrich and Zhang 2019 and in Araabi and Monz 2020",
        (128, 256, 4, 2, 0.3, 2000, 1024, 1, 2e-3, 400, 200, LIMIT, 200, 0.2, 10, 5),
    ),
    # The sources are the same as for the row above.
    3_000: (
        "a small model, 2,000 subwords, small batches and high dropout, as for 5,000 sentences in "
        "Sennrich and Zhang 2019 and in Araabi and Monz 2020",
        (128, 256, 4, 3, 0.3, 2000, 1024, 1, 2e-3, 400, 100, LIMIT, 300, 0.2, 10, 5),
    ),
    # The model of the next row; subwords between those of Sennrich and Zhang (2,000) and of Araabi
    # and Monz (10,000 merges).
    10_000: (
        "the model of Multi30k (Wu et al. 2021) with fewer subwords and smaller batches, as in "
        "Sennrich and Zhang 2019",
        (128, 256, 4, 4, 0.3, 4000, 2048, 1, 2e-3, 800, 80, LIMIT, 400, 0.1, 10, 5),
    ),
    # Wu et al. 2021 on Multi30k (29,000 pairs): this model has 41.02 BLEU, and larger ones overfit
    # (39.68 and 38.33). Here, the model, dropout, subwords and batches of this row had 39.2 after
    # 5,000 steps with another schedule (docs/results/multi30k.md).
    30_000: (
        "the model of Multi30k (29,000 pairs): larger ones overfit (Wu et al. 2021)",
        (128, 256, 4, 4, 0.3, 6000, 4096, 1, 4e-3, 1000, 60, LIMIT, 0, 0.1, 10, 5),
    ),
    # Between the rows around it. Araabi and Monz have 12,000 merges, 5 layers, dropout 0.3 and
    # batches of 4,096 tokens for 40,000 sentences.
    50_000: (
        "between the models of Multi30k (29,000 pairs) and of IWSLT14 (160,000)",
        (256, 1024, 4, 4, 0.3, 8000, 4096, 1, 1e-3, 1000, 40, LIMIT, 0, 0.1, 5, 5),
    ),
    # fairseq's transformer_iwslt_de_en, for the 160,000 pairs of IWSLT14, with its rate, warm-up,
    # dropout, smoothing and batches.
    200_000: (
        "fairseq's model of IWSLT14 (160,000 pairs)",
        (512, 1024, 4, 6, 0.3, 10_000, 4096, 1, 5e-4, 4000, 40, LIMIT, 0, 0.1, 5, 5),
    ),
    # The base model with more dropout and smaller updates than in the next row. The peak learning
    # rate is that of Vaswani et al. 2017: 512^-0.5 * 4000^-0.5.
    1_000_000: (
        "the base model of Vaswani et al. 2017 with more dropout and fewer subwords",
        (512, 2048, 8, 6, 0.2, 16_000, 4096, 4, 7e-4, 4000, 30, LIMIT, 0, 0.1, 5, 5),
    ),
    # Vaswani et al. 2017 on 4.5 million pairs: 100,000 updates of 25,000 tokens, here in parts of
    # 4,096 that fit into the memory of small devices.
    5_000_000: (
        "the base model of Vaswani et al. 2017 (4.5 million pairs)",
        (512, 2048, 8, 6, 0.1, 32_000, 4096, 6, 7e-4, 4000, 20, 600_000, 0, 0.1, 5, 5),
    ),
}
