"""A model that `MarianMTModel` computes is computed the same once it is imported."""

import importlib.util
import json
import subprocess
import sys
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

import transformer
from tiny_run import command
from transformer.data.corpora import symbols_of
from transformer.data.tokenizer import SPECIAL, Tokenizer, refuse_broken_symbols, with_symbols

pytestmark = pytest.mark.full
TEXTS = [
    "The old house is red.",
    "a dog sees 7 birds, “and” the cat?",
    "ﬁne words – from Zürich 字",
    "red red birds",
]
TARGETS = ["Das alte Haus ist rot.", "ein Hund sieht 7 Vögel", "Wörter aus Zürich 字", "rot"]
# In a process without this package: models of unlike shapes, and what they compute.
THEIRS = """
import itertools
import json
import pathlib
import random
import sys
import numpy
import sentencepiece
import torch
from transformers import MarianConfig, MarianMTModel, MarianTokenizer

assert not any(name.split(".")[0] in ("jax", "flax") for name in sys.modules)
root, texts, targets = pathlib.Path(sys.argv[1]), *map(json.loads, sys.argv[2:])
ENGLISH = "the a old new red blue house dog cat bird birds tree sees is in of and not Zurich seven"
GERMAN = "das ein alte neue rote blaue Haus Hund Katze Vogel Vögel Baum sieht ist in von und nicht"
SHAPES = {
    "opus": {},
    "tags": dict(activation_function="relu", d_model=24, encoder_layers=3,
        encoder_attention_heads=3, decoder_attention_heads=3, decoder_layers=1, encoder_ffn_dim=40,
        decoder_ffn_dim=40),
    "two vocabularies": dict(activation_function="gelu_new", tie_word_embeddings=False,
        share_encoder_decoder_embeddings=False, d_model=20, encoder_attention_heads=2,
        decoder_attention_heads=2),
    "half tied": dict(share_encoder_decoder_embeddings=False, encoder_layers=1),
    "one sentencepiece model": dict(activation_function="relu", tie_word_embeddings=False,
        share_encoder_decoder_embeddings=False, decoder_layers=3),
}

def lines(words, seed):
    draw = random.Random(seed)
    words = words.split()
    yield "Abcdefghijklmnopqrstuvwxyzäöüßêé.,?-'\\" ABCDEFGHIJKLMNOPQRSTUVWXYZ 0123456789"
    for _ in range(200):
        yield " ".join(draw.choices(words, k=6)).capitalize() + draw.choice(".?!")

def train(path, texts, size, kind):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_prefix=str(path), vocab_size=size, model_type=kind,
        character_coverage=1.0, minloglevel=2, hard_vocab_limit=False)
    model = path.with_suffix(".model")
    model.rename(path.with_suffix(".spm"))
    path.with_suffix(".vocab").unlink()
    read = sentencepiece.SentencePieceProcessor(model_file=str(path.with_suffix(".spm")))
    return [read.id_to_piece(i) for i in range(read.vocab_size()) if i > 2]

for number, (name, changes) in enumerate(SHAPES.items()):
    torch.manual_seed(number)
    folder = root / name
    folder.mkdir()
    if name == "one sentencepiece model":
        both = list(itertools.chain(lines(ENGLISH, 1), lines(GERMAN, 2)))
        pieces = [train(folder / side, both, 130, "bpe") for side in ("source", "target")]
    else:
        pieces = [train(folder / "source", lines(ENGLISH, 1), 110, "unigram"),
            train(folder / "target", lines(GERMAN, 2), 120, "unigram")]
    separate = name == "two vocabularies"
    if name == "opus":  # a character that no sentencepiece model has
        pieces[0].append("字")
    tags = [">>deu<<", ">>nds_Latn<<"] if name == "tags" else []
    names = pieces if separate else [sorted({*pieces[0], *pieces[1]})]
    sizes = []
    for file, own in zip(("vocab", "target_vocab"), names):
        random.Random(number).shuffle(own)
        middle = ["<pad>", *own] if separate or name == "half tied" else [*own, *tags, "<pad>"]
        vocabulary = {piece: i for i, piece in enumerate(["</s>", "<unk>", *middle])}
        (folder / f"{file}.json").write_text(json.dumps(vocabulary))
        sizes.append(len(vocabulary))
    pad = vocabulary["<pad>"]
    fields = dict(vocab_size=sizes[0], decoder_vocab_size=sizes[-1], d_model=32, encoder_layers=2,
        decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
        decoder_ffn_dim=48, activation_function="swish", max_position_embeddings=64,
        scale_embedding=True, pad_token_id=pad, decoder_start_token_id=pad, eos_token_id=0,
        forced_eos_token_id=None, attn_implementation="eager")
    model = MarianMTModel(MarianConfig(**{**fields, **changes})).eval()
    for key, x in model.named_parameters():
        if x.requires_grad:
            scale = 0.2 if x.ndim == 1 else x.shape[-1] ** -0.5
            x.data = ("norm.weight" in key) + scale * torch.randn_like(x)
    if name in ("opus", "half tied"):  # as conversion from Marian leaves it
        model.get_input_embeddings().weight.data[pad] = 0.0
        model.model.decoder.embed_tokens.weight.data[pad] = 0.0
    model.final_logits_bias += torch.randn_like(model.final_logits_bias)
    model.save_pretrained(folder)
    names = [str(folder / f"{side}.spm") for side in ("source", "target")]
    further = {"target_vocab_file": str(folder / "target_vocab.json")} if separate else {}
    tokenizer = MarianTokenizer(*names, str(folder / "vocab.json"), separate_vocabs=separate,
        source_lang="en", target_lang="de", **further)
    tokenizer.save_pretrained(folder)
    found = {}
    for i, (text, target) in enumerate(zip(texts, targets)):
        source = tokenizer(f"{tags[i % 2]} {text}" if tags else text, return_tensors="pt").input_ids
        labels = tokenizer(text_target=target, return_tensors="pt").input_ids
        read = torch.cat([torch.tensor([[pad]]), labels[:, :-1]], dim=1)
        with torch.no_grad():
            answer = model(input_ids=source, decoder_input_ids=read, output_attentions=True)
            written = model.generate(input_ids=source, num_beams=1, do_sample=False,
                max_new_tokens=12, bad_words_ids=[[pad], [1]])
        found |= {f"source {i}": source[0], f"target {i}": labels[0], f"written {i}": written[0],
            f"logits {i}": answer.logits[0]}
        for kind in ("encoder", "decoder", "cross"):
            found[f"{kind} {i}"] = torch.stack(answer[f"{kind}_attentions"])[:, 0]
    numpy.savez(folder / "found.npz", **{key: x.numpy() for key, x in found.items()})
"""
SHAPES = ("opus", "tags", "two vocabularies", "half tied", "one sentencepiece model")
KINDS = {"encoder": "encoder_self", "decoder": "decoder_self", "cross": "cross"}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    if not all(map(importlib.util.find_spec, ("transformers", "torch"))):
        pytest.skip("needs transformers and torch")
    root = tmp_path_factory.mktemp("theirs")
    texts = [json.dumps(each) for each in (TEXTS, TARGETS)]
    subprocess.run([sys.executable, "-c", THEIRS, str(root), *texts], check=True, cwd=root)
    return root


class Both(NamedTuple):
    """A model of theirs and the run that was imported from it; ids by ids, see `theirs_of`."""

    folder: object
    run: transformer.LoadedRun
    answers: dict


@pytest.fixture(scope="module", params=SHAPES)
def both(request, theirs, tmp_path_factory):
    folder = theirs / request.param
    output = tmp_path_factory.mktemp("ours") / "run"
    ended = command("--mode=import", f"--input={folder}", f"--output={output}")
    assert (ended.code, ended.out) == (0, f"{output}\n"), ended.err
    with np.load(folder / "found.npz") as answers:
        return Both(folder, transformer.load(output), dict(answers))


def theirs_of(folder, tokenizer: Tokenizer, name) -> dict[int, int]:
    """Their id of each of ours, by the names of tokens; what starts a text is their <pad>."""
    path = folder / f"{name}.json"
    names = json.loads((path if path.exists() else folder / "vocab.json").read_text())
    special = {"<s>": "<pad>", "</s>": "</s>", "<unk>": "<unk>"}
    found = {}
    for i, piece in enumerate(tokenizer.pieces(range(tokenizer.vocab_size))):
        theirs = special.get(piece, piece.removeprefix("▁") if "<<" in piece else piece)
        if i:
            found[i] = names[theirs]
    assert sorted(found.values()) == [*range(len(names))]
    assert SPECIAL[0] == "<pad>"
    return found


def texts_of(folder):
    tags = [">>deu<< ", ">>nds_Latn<< "] if folder.name == "tags" else ["", ""]
    return [tags[i % 2] + text for i, text in enumerate(TEXTS)]


def encoded(both):
    predictor = both.run.trained.predictor
    sources = predictor.source_tokenizer.encode(texts_of(both.folder))
    targets = predictor.target_tokenizer.encode(TARGETS)
    return [[*ids, 3] for ids in sources], [[*ids, 3] for ids in targets]


def test_tokens_are_theirs(both):
    predictor = both.run.trained.predictor
    names = theirs_of(both.folder, predictor.source_tokenizer, "vocab")
    target_names = theirs_of(both.folder, predictor.target_tokenizer, "target_vocab")
    for i, (source, target) in enumerate(zip(*encoded(both), strict=True)):
        assert [names[token] for token in source] == both.answers[f"source {i}"].tolist()
        assert [target_names[token] for token in target] == both.answers[f"target {i}"].tolist()


def test_a_tag_is_one_token_for_a_training_that_starts_from_the_run(both):
    settings = with_symbols(both.run.config.tokenizer, symbols_of(both.run.config.data))
    assert settings.symbols == ((">>deu<<", ">>nds_Latn<<") if both.folder.name == "tags" else ())
    refuse_broken_symbols(both.run.trained.predictor.source_tokenizer, settings)


def test_logits_and_attention_are_theirs(both):
    predictor, variables = both.run.trained.predictor, both.run.trained.variables
    model, names = (
        predictor.model,
        theirs_of(both.folder, predictor.target_tokenizer, "target_vocab"),
    )
    for i, (source, target) in enumerate(zip(*encoded(both), strict=True)):
        inputs = jnp.array([source]), jnp.array([[2, *target[:-1]]])
        masks = (jnp.ones(x.shape, bool) for x in inputs)
        logits, sown = model.apply(variables, *inputs, *masks, mutable="intermediates")
        expected = both.answers[f"logits {i}"]
        assert 0.5 < expected.std() < 5.0
        ours = np.asarray(logits[0])
        np.testing.assert_allclose(ours[:, [*names]], expected[:, [*names.values()]], atol=1e-5)
        assert ours[:, 0].max() < -50  # of what Marian lacks
        weights = model.sown_attention(sown["intermediates"], "weights")
        for theirs, kind in KINDS.items():
            found = np.stack(weights[kind])[:, 0]
            np.testing.assert_allclose(found, both.answers[f"{theirs} {i}"], rtol=0, atol=1e-5)
