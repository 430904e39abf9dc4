"""A page that holds its model reads, computes and translates as the run does."""

import base64
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from apart import refusal
from ml_collections import ConfigDict

import transformer
from chromium import DESKTOP, PHONE, opened, overflow
from configs import base
from offline import read_page, run_script
from tiny_models import tiny_model
from tiny_run import command, shared_run
from transformer.bridges.browser import RULE, make_model, make_tokenizer
from transformer.data.characters import canonicalize
from transformer.data.tokenizer.train import train_tokenizer
from variants import VARIANTS

SENTENCES = [
    *("Zwölf große Boxkämpfer jagen Viktor quer über den Sylter Deich .", "Ａ ｘ２ ﬁne ① Straße"),
    *("Съешь ещё этих мягких французских булок.", "the cat sat on the mat, the cat ran"),
    *("ॐ नमः शिवाय", "今日は良い天気ですね。", "a {name} b<URL>c {name}"),
]
BYTES = {"byte_fallback": True, "normalization": "nfkc_cf"}
TOKENIZERS = {
    "bpe": {},
    "bpe with bytes": {"byte_fallback": True, "vocab_size": 400},
    "bpe with symbols": {"symbols": ("{name}", "<URL>")},
    "unigram": {"kind": "unigram", "vocab_size": 97},
    "unigram with bytes": {"kind": "unigram", "vocab_size": 340, **BYTES},
    "word": {"kind": "word", "vocab_size": 40, "normalization": "nmt_nfkc_cf"},
    "char": {"kind": "char", "normalization": "identity"},
    "every blank": {"keep_spaces": True, **BYTES, "vocab_size": 400},
    "unigram with symbols": {"kind": "unigram", "vocab_size": 93, "symbols": ("{name}", "<URL>")},
}
READ = """
const tokenizer = new Tokenizer(spec, rule);
return texts.map((text) => {
  const ids = tokenizer.encode(text);
  return [ids, tokenizer.decode(ids)];
});
"""
PROBABILITIES = """
const model = new Transformer(spec.model, readArrays(spec.arrays, numbers));
const encoded = model.encode(source);
const memory = model.remember(encoded);
const logits = [];
const weights = [];
let past = model.noPast();
for (const id of target) {
  const step = model.read(id, past, memory);
  past = step.past;
  logits.push([...step.logits]);
  weights.push(step.cross);
}
const norms = past.map((keys, i) =>
  model.valueNorms(`decoder_layers_${i}/self_attention`, keys));
return { logits, weights, norms, encoder: encoded.weights };
"""


def tokenizer_of(folder, **changes):
    settings = ConfigDict({**base.get_config().tokenizer, "vocab_size": 300, **changes})
    texts = [text for text in SENTENCES for _ in range(5)]
    return train_tokenizer(texts, settings, folder, "texts")


def hostile_lines(count: int) -> list[str]:
    """Random lines of all kinds of characters, blanks, marks, symbols and pieces of words."""
    draw = random.Random(47)
    blocks = ((32, 127), (160, 591), (768, 880), (0x600, 0x700), (0x2000, 0x2070), (0x3040, 0x30FF))
    blocks += ((0xAC00, 0xAD00), (0xFF00, 0xFF9F), (0x1F300, 0x1F6FF), (0, 0xD7FF))
    parts = ["{name}", "<URL>", "{na", "▁", "  ", "\u200b", "\ufeff", "\u00ad", "fi", " "]

    def part() -> str:
        if draw.random() < 0.2:
            return draw.choice(parts)
        return "".join(chr(draw.randrange(*draw.choice(blocks))) for _ in range(draw.randrange(4)))

    return ["".join(part() for _ in range(draw.randrange(12))) for _ in range(count)]


@pytest.mark.full
@pytest.mark.parametrize("name", TOKENIZERS)
def test_hostile_lines_have_the_same_ids_and_texts(name, tmp_path):
    lines = hostile_lines(2000)
    tokenizer = tokenizer_of(tmp_path, **TOKENIZERS[name])
    answers = run_script(tmp_path, READ, spec=make_tokenizer(tokenizer), rule=RULE, texts=lines)
    expected = tokenizer.encode(lines)
    pairs = zip(lines, answers, expected, strict=True)
    assert [line for line, (ids, _), right in pairs if ids != right] == []
    decoded = [canonicalize(tokenizer.decode(ids)) for ids in expected]
    assert [text for _, text in answers] == decoded


@pytest.mark.full
@pytest.mark.parametrize("name", ["plain", *VARIANTS])
def test_logits_attention_and_norms_are_ours_or_the_key_is_named(name, tmp_path):
    model, variables = tiny_model(**(VARIANTS[name][0] if name in VARIANTS else {}))
    arguments = model.config, variables["params"], 20
    if says := refusal(make_model, *arguments):
        assert says.startswith("a page cannot compute model.")
        parts = ("shaw", "own", "cross", "talking", "queries", "sink", "gates")
        assert any(part in name for part in parts)
        return
    source, target = [5, 7, 11, 4, 13, 3], [2, 6, 9, 4, 16, 8, 12]
    both = jnp.array([source]), jnp.array([target])
    masks = (jnp.ones(x.shape, bool) for x in both)
    logits, state = model.apply(variables, *both, *masks, mutable=["intermediates"])
    weights = model.sown_attention(state["intermediates"], "weights")
    norms = model.sown_attention(state["intermediates"], "value_norms")
    spec, numbers = make_model(*arguments)
    encoded = base64.b64encode(numbers).decode()
    values = {"spec": spec, "numbers": encoded, "source": source, "target": target}
    computed = run_script(tmp_path, PROBABILITIES, **values)
    np.testing.assert_allclose(
        jax.nn.log_softmax(jnp.array(computed["logits"])),
        jax.nn.log_softmax(logits[0]),
        rtol=0,
        atol=1e-3,
    )
    cross = np.moveaxis(np.array(computed["weights"]), 0, 2)  # from [query, layer, head, key]
    np.testing.assert_allclose(cross, np.stack(weights["cross"])[:, 0], rtol=0, atol=1e-3)
    encoder = np.stack(weights["encoder_self"])[:, 0]
    np.testing.assert_allclose(computed["encoder"], encoder, rtol=0, atol=1e-3)
    decoder = np.stack(norms["decoder_self"])[:, 0]
    np.testing.assert_allclose(computed["norms"], decoder, rtol=1e-3, atol=1e-3)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A run, and its page."""
    tiny, folder = shared_run(tmp_path_factory), tmp_path_factory.mktemp("page") / "page"
    flags = "--mode=export", "--format=html", f"--output={folder}"
    ended = command(f"--workdir={tiny.workdir}", *flags)
    assert ended.code == 0, ended.err
    return transformer.load(tiny.workdir), folder / "index.html"


def test_a_page_translates_as_the_run_does(tiny, tmp_path):
    run, page = tiny
    texts = ["a b c", "d e", "f", "", "E D C B A", "They saw Mr. Smith. " * 9, "c\u200bd \ufeff e"]
    texts += ["a b c\n\n  d e. C d! \r\nf", " \n a. b\u2028c\n", "a b.\n", "\n", "e f. A d? "]
    answers = run_script(
        tmp_path,
        """const offline = new OfflineTranslator(spec, numbers);
const translations = [];
for (const text of texts) translations.push(await offline.translate(text));
return translations;""",
        **read_page(page),
        texts=texts,
    )
    ours = run.translate(texts, num_best=2)
    shown = [[each["text"] for each in best[:2]] for best in answers]
    right = [[each.text for each in best] for best in ours]
    # Of several equal sentences the second best may be that of any.
    assert answers[5][1]["score"] == pytest.approx(ours[5][1].score, abs=1e-3)
    shown[5][1:], right[5][1:] = [], []
    assert shown == right
    scores = [(best[0]["score"], right[0].score) for best, right in zip(answers, ours, strict=True)]
    np.testing.assert_allclose(*zip(*scores, strict=True), rtol=0, atol=1e-3)


@pytest.mark.browser
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE])
def test_somebody_types_without_a_network_and_sees_translation_and_heads(viewport, tiny, chromium):
    run, file = tiny
    [[best]] = run.translate(["d e"], num_best=1)
    cross = run.attention("d e", best.text).weights["cross"]
    with opened(chromium, file, viewport=viewport, offline=True) as page:
        page.fill("#text", "d e")
        page.wait_for_selector(".answers li")
        assert page.inner_text(".answers li button") == best.text
        page.get_by_role("tab", name="Heads").click()
        page.wait_for_selector("#heads:not([hidden])")
        shown = page.evaluate("explorer.matrix({ kind: 'cross', layer: 1, head: 2 }).rows")
        np.testing.assert_allclose(shown, cross[0, 1], rtol=0, atol=1e-3)
        assert overflow(page) <= 0
