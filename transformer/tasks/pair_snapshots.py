"""Attention snapshots of a translator in fixed sentence pairs."""

from collections.abc import Sequence

from ml_collections import ConfigDict

from transformer.analysis.alignment import GoldLinks, words_of_text
from transformer.analysis.snapshots import HeadSnapshots, LinkedPair, divide
from transformer.data.pairs import Pair
from transformer.data.parallel.batches import make_batch
from transformer.data.tokenizer import PAD_ID
from transformer.inference.translator import Translator


def snapshot_of_pairs(
    translator: Translator, pairs: Sequence[Pair], config: ConfigDict
) -> HeadSnapshots:
    """Returns the snapshot of pairs, without those that are too long for training.

    Args:
      config: the whole experiment.
    """
    source, target = translator.source_tokenizer, translator.target_tokenizer
    sources = source.encode([pair.source for pair in pairs])
    targets = target.encode([pair.target for pair in pairs])
    lengths = [max(map(len, sides)) + 1 for sides in zip(sources, targets, strict=True)]
    longest = min(config.data.max_tokens, translator.max_length)
    kept, model = config.evaluate.snapshot_sentences, config.model
    maps = model.num_heads * (model.num_encoder_layers + 2 * model.num_decoder_layers)
    parts = divide(lengths, longest, kept, maps, config.data.batch_tokens)
    batches = [
        make_batch(
            [sources[i] for i in texts], [targets[i] for i in texts], parts.rows, parts.length
        )
        for texts in parts.texts
    ]
    tokens = [
        (source.pieces(read[read != PAD_ID]), target.pieces(written[written != PAD_ID]))
        for batch in batches
        for read, written in zip(*batch[:2], strict=True)
    ]
    chosen = [pairs[i] for texts in parts.texts for i in texts]
    kept = min(kept, len(chosen))  # and no rows of padding
    known = all(pair.alignment is not None for pair in chosen)
    linked = _linked(translator, chosen) if known else []
    return HeadSnapshots(translator.batch_attention, batches, tokens[:kept], linked)


def _linked(translator: Translator, pairs: Sequence[Pair]) -> list[LinkedPair]:
    """The words of pairs, and their gold links."""
    sides = (
        map(words_of_text, texts, tokenizer.starts(texts))
        for tokenizer, texts in (
            (translator.source_tokenizer, [pair.source for pair in pairs]),
            (translator.target_tokenizer, [pair.target for pair in pairs]),
        )
    )
    gold = (GoldLinks(pair.alignment or ()) for pair in pairs)
    return list(map(LinkedPair, *sides, gold))
