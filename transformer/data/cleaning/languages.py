"""How probable a language is for a sentence.

By py3langid, a naive Bayes classifier of 130 languages in 4 MB: on short sentences it is more
accurate, faster and smaller than lingua, see docs/results/cleaning.md.

Source: Lui and Baldwin, "langid.py: An Off-the-shelf Language Identification Tool" (2012).
"""

import functools
import re
from typing import Any

from transformer.errors import UserError

# Codes of countries that are taken for those of languages.
COUNTRIES = {"ua": "uk", "cz": "cs", "gr": "el", "jp": "ja", "kr": "ko", "cn": "zh", "dk": "da",
             "se": "sv", "si": "sl", "ee": "et", "al": "sq", "in": "hi"}  # fmt: skip


def check_language(language: str) -> None:
    """Raises UserError if a language is unknown, or the library that identifies it is missing."""
    known = _identifier().labels
    if language not in known:
        near = COUNTRIES.get(language.lower(), re.split("[-_]", language.lower())[0])
        what = (
            f"did you mean {near!r}?" if near in known else f"choose of {', '.join(sorted(known))}"
        )
        raise UserError(
            f"config.data.languages: {language!r} is unknown: give the codes of the languages of "
            f"source and target, such as en,de: {what}"
        )


def likeliness(language: str, text: str) -> float:
    """Returns the probability of a language, over that of the most probable one; from 0 to 1.

    A text of few letters leaves many languages likely, and one without letters all.
    """
    ranked = _identifier().rank(text)
    return dict(ranked)[language] / ranked[0][1]


@functools.cache
def _identifier() -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ModuleNotFoundError:
        raise UserError(
            "config.data.languages needs a library: install it with `pip install py3langid`, or "
            "leave the languages empty"
        ) from None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
