"""An existing sentencepiece model, in place of one that is trained."""

import logging
from pathlib import Path

from google.protobuf.message import DecodeError
from ml_collections import ConfigDict

# protobuf makes this class when it is imported.
# pyright: reportAttributeAccessIssue=false
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from transformer.data.tokenizer.ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer.data.tokenizer.model import Tokenizer, digest_of, saved_tokenizer
from transformer.data.tokenizer.symbols import add_symbols, check_symbols, refuse_broken_symbols
from transformer.errors import RunError, UserError

SPECIAL = {PAD_ID: "<pad>", UNK_ID: "<unk>", BOS_ID: "<s>", EOS_ID: "</s>"}
SPACED = "a  b \n\t c "  # which a model of running text gives back

logger = logging.getLogger(__name__)


def check_models(settings: ConfigDict, init_from: str) -> None:
    """Checks `tokenizer.model` and `tokenizer.target_model` with the keys that they depend on.

    Args:
      settings: `config.tokenizer`.
      init_from: `config.train.init_from`.

    Raises:
      UserError: there is a second model for one vocabulary, or a model although a run's
        tokenizer is kept or grows.
    """
    if settings.joint and settings.target_model:
        raise UserError(
            f"tokenizer.target_model={settings.target_model!r} is for two vocabularies: set "
            "config.tokenizer.joint=False, or config.tokenizer.model alone"
        )
    if init_from and settings.initial != "new" and (settings.model or settings.target_model):
        raise UserError(
            f"tokenizer.initial={settings.initial} takes the tokenizer of {init_from}, not "
            f"{settings.model or settings.target_model!r}: leave the model out, or set "
            "config.tokenizer.initial=new"
        )


def adopt_tokenizer(name: str, settings: ConfigDict, saved: Path | None = None) -> Tokenizer:
    """Returns the tokenizer of a sentencepiece model, with this project's ids.

    It has as many pieces as the model, and the symbols and special ones that the model lacks.

    Args:
      name: of the model's file.
      settings: `config.tokenizer`, whose `symbols` become pieces; of the training's keys none
        counts.
      saved: a file of a run; taken if it holds this model, which is then not read.

    Raises:
      UserError: the file is missing or is not a sentencepiece model.
      RunError: it cannot have a symbol, or loses blanks that `keep_spaces` wants.
    """
    check_symbols(settings)
    origin = digest_of(repr(("adopted", name, settings.symbols)).encode())
    tokenizer = saved_tokenizer(saved, origin) if saved else None
    if tokenizer is None:
        tokenizer = _read(name, settings.symbols, origin)
    refuse_broken_symbols(tokenizer, settings)
    if settings.keep_spaces and tokenizer.decode(tokenizer.encode([SPACED])[0]) != SPACED:
        raise RunError(
            f"tokenizer.model={name!r} does not give back every blank: set "
            "config.tokenizer.keep_spaces=False, or name a model that does"
        )
    logger.info(
        "%s: %s subwords of kind %s; tokenizer.vocab_size=%s and the other keys of a tokenizer's "
        "training do not count",
        name,
        f"{tokenizer.vocab_size:,}",
        tokenizer.kind,
        settings.vocab_size,
    )
    return tokenizer


def _read(name: str, symbols: tuple[str, ...], origin: str) -> Tokenizer:
    path = Path(name).expanduser()
    try:
        model = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"tokenizer.model={name!r} cannot be read ({error.strerror}): name the file of a "
            "sentencepiece model"
        ) from None
    try:
        proto = ModelProto.FromString(model)
        Tokenizer(model)
        if not proto.pieces:
            raise RuntimeError
        return Tokenizer(_with_ids(proto, name, symbols), origin)
    except (DecodeError, RuntimeError):
        raise UserError(
            f"tokenizer.model={name!r} is not a sentencepiece model, or is damaged: name a file "
            "such as spm_train writes, *.model"
        ) from None


def _with_ids(proto: ModelProto, name: str, symbols: tuple[str, ...]) -> bytes:
    """The model with the four special pieces first, the others in their order, and the symbols."""
    spec, pieces = proto.trainer_spec, list(proto.pieces)
    names = {*SPECIAL.values(), spec.pad_piece, spec.bos_piece, spec.eos_piece}

    def special(piece) -> bool:
        named = piece.type == piece.CONTROL and piece.piece in names
        return named or piece.type == piece.UNKNOWN

    others = [piece for piece in pieces if not special(piece)]
    if taken := {piece.piece for piece in others} & {*SPECIAL.values()}:
        raise RunError(
            f"tokenizer.model={name!r} has {', '.join(sorted(taken))} as a subword of texts: name "
            "a model that has not"
        )
    del proto.pieces[:]
    for number, text in SPECIAL.items():
        kind = "UNKNOWN" if number == UNK_ID else "CONTROL"
        proto.pieces.add(piece=text, type=ModelProto.SentencePiece.Type.Value(kind))
    proto.pieces.extend(others)
    add_symbols(proto, symbols)
    spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = SPECIAL
    spec.pad_piece, spec.unk_piece, spec.bos_piece, spec.eos_piece = SPECIAL.values()
    spec.vocab_size = len(proto.pieces)
    return proto.SerializeToString()
