"""A vocabulary that grows: subwords of other text, appended to those that a model knows."""

from collections.abc import Callable

import sentencepiece
from ml_collections import ConfigDict

# protobuf makes these classes when they are imported.
# pyright: reportAttributeAccessIssue=false
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from transformer.data.tokenizer.symbols import add_symbols
from transformer.errors import RunError


def grow(old: bytes, train: Callable[..., bytes], settings: ConfigDict) -> bytes:
    """Returns a model with the pieces of `old` and, up to `vocab_size` in all, more of other text.

    Args:
      train: called with settings and options of sentencepiece, returns a model of the other text.
      settings: `config.tokenizer`, whose kind and normalisation are those of `old` instead.

    Raises:
      RunError: there is no room for more pieces.
    """
    model = ModelProto.FromString(old)
    known = {piece.piece for piece in model.pieces}
    if settings.vocab_size <= len(known.union(settings.symbols)):
        raise RunError(
            f"tokenizer.vocab_size={settings.vocab_size} leaves no room for more than the "
            f"{len(model.pieces)} pieces of the tokenizer that tokenizer.initial=grow starts with: "
            "raise config.tokenizer.vocab_size, or set config.tokenizer.initial=keep"
        )
    similar = settings.copy_and_resolve_references()
    similar.kind = TrainerSpec.ModelType.Name(model.trainer_spec.model_type).lower()
    similar.normalization = model.normalizer_spec.name
    similar.byte_fallback = model.trainer_spec.byte_fallback
    similar.keep_spaces = not model.normalizer_spec.add_dummy_prefix
    # Text of fewer pieces adds fewer.
    return grown_model(old, train(similar, hard_vocab_limit=False), settings.vocab_size)


def grown_model(old: bytes, new: bytes, size: int) -> bytes:
    """Returns a sentencepiece model with the pieces of `old`, then those that only `new` has.

    The old pieces keep ids and scores. The symbols of `new` come first among the others, then its
    single characters, then the longer pieces in its order: a longer piece is of no use without its
    characters. Of BPE they are merged after all old ones, so that a text is cut as before and then
    perhaps joined further. A piece that the model would never make, not even of its own text, is
    left out: its parts are joined otherwise (Purason et al. 2025, "Teaching Old Tokenizers New
    Words").

    Args:
      old, new: of one kind and normalisation.
      size: pieces of the result, at most.
    """
    model, other = ModelProto.FromString(old), ModelProto.FromString(new)
    add_symbols(model, [p.piece for p in other.pieces if p.type == p.USER_DEFINED])
    first, known = len(model.pieces), {piece.piece for piece in model.pieces}
    lacking = [p for p in other.pieces if p.type == p.NORMAL and p.piece not in known]
    lacking.sort(key=lambda piece: len(piece.piece) > 1)
    lowest = min(piece.score for piece in model.pieces)
    is_bpe = model.trainer_spec.model_type == TrainerSpec.BPE
    for i, piece in enumerate(lacking, 1):
        model.pieces.add(piece=piece.piece, score=lowest - i if is_bpe else piece.score)
    made = _made(model, [piece.piece for piece in lacking])
    kept = [piece for piece in model.pieces[first:] if piece.piece in made][: size - first]
    del model.pieces[first:]
    model.pieces.extend(kept)
    model.trainer_spec.vocab_size = len(model.pieces)
    return model.SerializeToString(deterministic=True)


def _made(model: ModelProto, pieces: list[str]) -> set[str]:
    """Those of some pieces that a model makes of their own text, which it reads as it stands."""
    plain = ModelProto()
    plain.CopyFrom(model)
    plain.normalizer_spec.Clear()
    plain.normalizer_spec.add_dummy_prefix = False
    plain.normalizer_spec.remove_extra_whitespaces = False
    processor = sentencepiece.SentencePieceProcessor(model_proto=plain.SerializeToString())
    return {p for p, cut in zip(pieces, processor.encode(pieces, out_type=str), strict=True)
            if cut == [p]}  # fmt: skip
