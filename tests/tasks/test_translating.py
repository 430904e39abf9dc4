"""Text in, text out: whatever the lines hold, whoever their neighbours are."""

import collections
import contextlib
from pathlib import Path

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from experiments.tasks import translation as translating
from tiny_run import command, loading_once, refused, shared_run
from transformer import workdir
from transformer.data.tokenizer import BOS_ID, PAD_ID, UNK_ID
from transformer.inference import search
from transformer.inference.groups import length_groups
from transformer.inference.search import BeamSearch
from transformer.tasks.translation import load_tokenizers, make_translator

LETTERS = "abcdefghijklmnop"


@pytest.fixture(scope="module", autouse=True)
def once():
    with loading_once(translating):
        yield


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return shared_run(tmp_path_factory)


@pytest.fixture(scope="module")
def loaded(tiny):
    """A translator and its parameters."""
    config = workdir.load_config(tiny.workdir)
    run = workdir.load_trained(tiny.workdir, config)
    translator, params = run.predictor, run.variables
    return translator, params


@pytest.fixture
def translate(tiny):
    def run(text, *arguments):
        text = text if isinstance(text, bytes) else text.encode()
        return command("--mode=translate", f"--workdir={tiny.workdir}", *arguments, stdin=text)

    return run


def sentences(count, seed=0, longest=12):
    random = np.random.default_rng(seed)
    return [
        " ".join(random.choice(list(LETTERS), random.integers(1, longest + 1)))
        for _ in range(count)
    ]


# -- lines


def test_every_line_has_its_line_and_blank_ones_stay_blank(translate):
    lines = ["a b c", "", "  ", "\u200b", "d e", "😀 a", "שלום עולם", "\x00", "e\u2028f\x0cg\x85h"]
    ended = translate("\n".join(lines))  # without a newline at the end
    assert (ended.code, ended.err) == (0, "")
    translations = ended.out.split("\n")
    assert translations.pop() == ""
    assert len(translations) == len(lines)
    for line, translation in zip(lines, translations, strict=True):
        if line in ("", "  ", "\u200b"):
            assert translation == ""
    assert translations[0] != ""
    assert translations[4] != ""


def test_windows_line_ends_and_a_byte_order_mark_change_nothing(translate):
    assert translate("\ufeffa b\r\nc d\r\n\r\n").out == translate("a b\nc d\n\n").out


@pytest.mark.parametrize("text", ["", "\n\n \n"])
def test_input_without_a_sentence_has_output_without_one(translate, text):
    ended = translate(text)
    assert (ended.code, ended.err, ended.out) == (0, "", text.replace(" ", ""))


def test_unsplit_lines_past_the_limit_are_translated_as_far_as_it_goes_and_named(translate):
    long = "a b c d " * 25_000
    text = f"a\n{long}\n{'x' * 100_000}\n" + "a b c d " * 10
    ended = translate(text, "--config.decode.split_sentences=never")
    assert ended.code == 0
    assert len(ended.out.splitlines()) == 4
    warnings = ended.err.splitlines()
    assert len(warnings) == 2
    assert warnings[0].startswith("line 2 has 100000 tokens: only the first 31 are read")
    assert warnings[1].startswith("line 4 has 40 tokens")
    assert "model.max_length=32" in warnings[0]
    assert ended.out.splitlines()[1] == ended.out.splitlines()[3]  # both begin alike


def test_a_line_of_several_sentences_is_the_translations_of_each_in_their_order(translate):
    sentences = [
        "a b c d e f!",
        "A i g i a g!",
        "A b c d e f g?",
        "a b c",
        "i i i g g?",
        "A g g g i i.",
    ]
    first, last = " ".join(sentences[:3]), " ".join(sentences[4:])
    ended = translate(f"{first}\n\n{sentences[3]}\n \n{last}\n")
    assert (ended.code, ended.err) == (0, "")
    alone = translate("\n".join(sentences)).out.splitlines()
    assert all(alone)
    joined = " ".join(alone[:3])
    assert ended.out.splitlines() == [joined, "", alone[3], "", " ".join(alone[4:])]
    cut = translate(f"{first}\n", "--config.decode.split_sentences=never")
    assert cut.out != f"{joined}\n"  # the control


def test_several_translations_of_a_split_line_are_sorted_by_the_sum_of_their_scores(translate):
    def rows(text):
        out = translate(text, "--config.decode.num_best=2").out
        return [line.split("\t") for line in out.splitlines()]

    left, right = rows("a b c d e f!\nA i g i a g.\n")[::2]
    assert all((left[2], right[2]))
    found = rows("a\na b c d e f! A i g i a g.\n")[2:]
    assert [row[0] for row in found] == ["2", "2"]
    assert found[0][2] == f"{left[2]} {right[2]}"
    scores = [float(row[1]) for row in found]
    assert scores[0] == pytest.approx(float(left[1]) + float(right[1]), abs=1.1e-4)
    assert scores == sorted(scores, reverse=True)


def test_a_sentence_past_the_limit_is_translated_in_parts_and_named(translate):
    half = "a b c d " * 10
    ended = translate(f"a\n{half}, {half}\n{half * 3}\n")
    warnings = ended.err.splitlines()
    assert [line.split(" (")[0] for line in warnings] == [
        f"line {number} has a sentence of more than 31 tokens, translated in parts"
        for number in (2, 3)
    ]
    assert all("model.max_length=32" in line for line in warnings)
    assert len(ended.out.splitlines()) == 3


def test_a_line_that_is_not_utf8_is_named(translate, tiny, tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"a b\n\xff\xfe\n")
    arguments = ["--mode=translate", f"--workdir={tiny.workdir}"]
    refused(*arguments, stdin=path.read_bytes(), says=("standard input, line 2", "UTF-8"))
    refused(*arguments, f"--input={path}", says=(f"{path}, line 2", "UTF-8"))


# -- files


def test_input_and_output_may_be_files(translate, tmp_path):
    (tmp_path / "in").write_text("a b\nc\n")
    (tmp_path / "out").write_text("old")
    files = [f"--input={tmp_path / 'in'}", f"--output={tmp_path / 'out'}"]
    ended = translate("", *files)
    assert (ended.code, ended.out) == (0, "")
    assert ended.err == f"wrote 2 lines to {tmp_path / 'out'}\n"
    assert (tmp_path / "out").read_text() == translate("a b\nc\n").out
    assert {path.name for path in tmp_path.iterdir()} == {"in", "out"}


def test_output_that_was_there_survives_a_mistake(tiny, tmp_path):
    (tmp_path / "in").write_text("a b\n")
    (tmp_path / "bad").write_bytes(b"\xff\n")
    (tmp_path / "out").write_text("precious")
    for files, says in [
        (("none", "out"), ("none", "is not a file")),
        ((".", "out"), "is not a file"),
        (("bad", "out"), "is not UTF-8"),
        (("in", "in"), ("is a file that is read", "name another file")),
        (("in", "."), "is a folder"),
        (("in", "nowhere/out"), ("there is no folder", "nowhere")),
    ]:
        refused(
            "--mode=translate",
            f"--workdir={tiny.workdir}",
            f"--input={tmp_path / files[0]}",
            f"--output={tmp_path / files[1]}",
            says=says,
        )
    assert (tmp_path / "out").read_text() == "precious"
    assert (tmp_path / "in").read_text() == "a b\n"


def test_a_device_given_as_output_stays_a_device(translate, tmp_path):
    ended = translate("a\n", "--output=/dev/null")
    assert ended.code == 0
    with open("/dev/null") as file:
        assert file.read() == ""


@pytest.mark.parametrize("mode", ["translate", "score"])
def test_the_bar_is_told_of_every_line_once(mode, tiny, tmp_path, monkeypatch):
    told = []

    @contextlib.contextmanager
    def recorded(total, hidden):
        told.append(total)
        yield told.append

    monkeypatch.setattr(translating, "line_progress", recorded)
    monkeypatch.setattr("experiments.text_io.LINES_AT_ONCE", 20)
    lines = ["Bab dad. Gag!\tc", "", "d\te f"] * 11
    (tmp_path / "in").write_text("\n".join(lines))
    arguments = [f"--mode={mode}", f"--workdir={tiny.workdir}"]
    ended = command(*arguments, f"--input={tmp_path / 'in'}")
    assert (ended.code, len(ended.out.splitlines())) == (0, 33)
    total, *counts = told
    assert (total, sum(counts)) == (33, 33)
    assert len(counts) > 4  # and not only at the end
    told.clear()
    command(*arguments, stdin=b"a\tb\n")
    assert told[0] is None


# -- several translations


def test_several_translations_are_numbered_and_sorted_by_score(translate):
    ended = translate("a b c\n\nd e\n", "--config.decode.num_best=3")
    rows = [line.split("\t") for line in ended.out.splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "1", "2", "3", "3", "3"]
    assert rows[3] == ["2", "0.0000", ""]
    for first in (0, 4):
        scores = [float(row[1]) for row in rows[first : first + 3]]
        assert scores == sorted(scores, reverse=True)
        assert len({row[2] for row in rows[first : first + 3]}) == 3
    best = translate("a b c\n\nd e\n").out.splitlines()
    assert best == [rows[0][2], "", rows[4][2]]


def test_a_decoding_key_is_changed_from_the_folder_alone(translate):
    ended = translate("a b c\n", "--config.decode.beam_size=5", "--config.decode.num_best=5")
    assert (ended.code, len(ended.out.splitlines())) == (0, 5)


def test_translations_do_not_depend_on_batches_order_or_neighbours(loaded):
    translator, params = loaded
    lines = [*sentences(13), "", "a"]
    expected = translator.translate(params, lines)
    alone = [translator.translate(params, [line])[0] for line in lines[::5]]
    results = {"alone": (alone, expected[::5])}
    order = np.random.default_rng(1).permutation(len(lines))
    mixed = translator.translate(params, [lines[i] for i in order])
    results["mixed"] = (mixed, [expected[i] for i in order])
    before = translator.decode.batch_size
    try:
        for size in (1, 3, 64):
            translator.decode.batch_size = size
            results[size] = (translator.translate(params, lines), expected)
    finally:
        translator.decode.batch_size = before
    for found, wanted in results.values():
        assert [[t.text for t in best] for best in found] == [
            [t.text for t in best] for best in wanted
        ]
        np.testing.assert_allclose(
            [best[0].score for best in found], [best[0].score for best in wanted], rtol=1e-4
        )
    assert len({best[0].text for best in expected}) > 3  # the control: they are not all alike


@pytest.mark.slow
def test_a_search_that_grows_and_shrinks_finds_the_same(loaded, monkeypatch):
    translator, params = loaded
    lines = sentences(13)
    expected = translator.translate(params, lines)
    for name, value in {
        "FIRST_ROOM": 1,
        "MIN_ROWS": 1,
        "MANY": 0,
    }.items():
        monkeypatch.setattr(search, name, value)
    monkeypatch.setattr(translator, "_search", BeamSearch(translator.model, translator.decode))
    changes = []
    for name in ("_grow", "_take"):
        made = getattr(translator._search, name)

        def counted(*arguments, name=name, made=made):
            changes.append(name)
            return made(*arguments)

        monkeypatch.setattr(translator._search, name, counted)
    found = translator.translate(params, lines)
    assert {*changes} == {"_grow", "_take"}
    assert [[t.text for t in best] for best in found] == [[t.text for t in b] for b in expected]
    np.testing.assert_allclose(
        [t.score for best in found for t in best], [t.score for b in expected for t in b], rtol=1e-4
    )


def search_length(translator, lines):
    """The static length of the sources, all in one batch."""
    [(_, length)] = length_groups(
        range(len(lines)),
        [len(ids) + 1 for ids in translator.source_tokenizer.encode(lines)],
        len(lines),
        translator.max_length,
    )
    return length


# -- score


def test_the_score_of_a_translation_is_what_the_search_found(loaded, monkeypatch):
    translator, params = loaded
    decode = ConfigDict({**translator.decode, "length_penalty": "none"})
    monkeypatch.setattr(translator, "_search", BeamSearch(translator.model, decode))
    lines = sentences(6, seed=2)
    best = [found[0] for found in translator.translate(params, lines)]
    scores = list(translator.score(params, lines, [t.text for t in best]))
    np.testing.assert_allclose([s for s, _ in scores], [t.score for t in best], rtol=1e-4)
    tokens = translator.target_tokenizer.encode([t.text for t in best])
    assert [count for _, count in scores] == [len(ids) + 1 for ids in tokens]
    [(other, _)] = translator.score(params, lines[:1], ["p p p"])
    assert other != pytest.approx(best[0].score, rel=1e-2)


def test_scores_do_not_depend_on_the_other_lines(loaded):
    translator, params = loaded
    pairs = list(zip(sentences(9, 3), sentences(9, 4), strict=True))
    together = list(translator.score(params, *map(list, zip(*pairs, strict=True))))
    for pair, (log_prob, count) in list(zip(pairs, together, strict=True))[::4]:
        [(alone, alone_count)] = translator.score(params, *([text] for text in pair))
        assert alone == pytest.approx(log_prob, rel=1e-4)
        assert alone_count == count


def test_score_writes_a_line_for_each_pair_and_names_one_with_wrong_columns(tiny):
    arguments = ["--mode=score", f"--workdir={tiny.workdir}"]
    ended = command(*arguments, stdin=b"a b\ta b\n\t\nc\td\n")
    rows = [line.split("\t") for line in ended.out.splitlines()]
    assert [row[1] for row in rows] == ["3", "1", "2"]
    assert all(float(row[0]) < 0 for row in rows)
    ended = refused(
        *arguments, stdin=b"a\tb\nc\n", says="line 2 has 1 column: score reads source<TAB>target"
    )
    assert len(ended.out.splitlines()) == 1
    refused(*arguments, stdin=b"a\tb\tc\n", says="line 1 has 3 columns")


def test_score_keeps_blank_lines_blank_and_the_others_as_they_were(tiny):
    arguments = ["--mode=score", f"--workdir={tiny.workdir}"]
    ended = command(*arguments, stdin="\na b\ta b\n  \n\u200b\nc\td\n".encode())
    assert (ended.code, ended.err) == (0, "")
    rows = ended.out.splitlines()
    assert [rows.pop(i) for i in (3, 2, 0)] == [""] * 3
    alone = command(*arguments, stdin=b"a b\ta b\nc\td\n").out.splitlines()
    found, expected = ([row.split("\t") for row in lines] for lines in (rows, alone))
    assert [row[1] for row in found] == [row[1] for row in expected] == ["3", "2"]
    np.testing.assert_allclose(*([float(row[0]) for row in x] for x in (found, expected)), 1e-3)


# -- attention


def test_attention_weights_are_distributions_over_the_right_tokens(loaded):
    translator, params = loaded
    weights, norms, source, target, _ = translator.attention(params, "a b c", "d e")
    assert source == ["▁a", "▁b", "▁c", "</s>"]
    assert target == ["<s>", "▁d", "▁e"]
    shapes = {"encoder_self": (1, 2, 4, 4), "decoder_self": (1, 2, 3, 3), "cross": (1, 2, 3, 4)}
    assert {kind: array.shape for kind, array in weights.items()} == shapes
    for array in weights.values():
        np.testing.assert_allclose(array.sum(-1), 1, rtol=1e-5)
        assert (array >= 0).all()
    assert {kind: array.shape for kind, array in norms.items()} == {
        kind: (*shape[:2], shape[3]) for kind, shape in shapes.items()
    }
    assert (np.triu(weights["decoder_self"][0, 0], 1) == 0).all()
    assert (np.triu(weights["encoder_self"][0, 0], 1) > 0).any()  # the control: it looks ahead


@pytest.mark.parametrize("arguments", [["--translation=d e"], ["--hide_eos"]])
def test_attention_draws_and_keeps_the_arrays_of_the_model(tiny, loaded, arguments, tmp_path):
    folder = tiny.copy(tmp_path / "run")
    ended = command("--mode=attention", f"--workdir={folder}", "--sentence=a b c", *arguments)
    assert ended.code == 0, ended.err
    *pictures, page = ended.out.splitlines()
    assert len(pictures) == 3
    opens_hidden = '"end":"hidden"' in Path(page).read_text(encoding="utf-8")
    assert opens_hidden == ("--hide_eos" in arguments)
    saved = np.load(Path(page).parent / "attention.npz")
    translation = arguments[0].partition("=")[2]
    weights, _, source, target, _ = loaded[0].attention(loaded[1], "a b c", translation or None)
    assert list(saved["target_tokens"]) == target
    assert list(saved["written_tokens"]) == [*target[1:], "</s>"]
    np.testing.assert_allclose(saved["decoder_self"], weights["decoder_self"], atol=1e-6)
    assert list(saved["source_tokens"]) == source
    np.testing.assert_allclose(saved["cross"], weights["cross"], atol=1e-6)


def test_a_sentence_with_nothing_in_it_has_no_attention(tiny):
    arguments = ["--mode=attention", f"--workdir={tiny.workdir}"]
    refused(*arguments, says="--sentence is missing")
    for blank in ("", "  ", "\u200b"):
        refused(*arguments, f"--sentence={blank}", says="--sentence is blank")


def test_the_translation_of_attention_may_be_blank(loaded):
    weights, _, _, target, _ = loaded[0].attention(loaded[1], "a b", "")
    assert target == ["<s>"]
    assert weights["cross"].shape == (1, 2, 1, 3)


# -- limits


def test_learned_positions_are_never_overrun_in_use(tiny, said):
    config = workdir.load_config(tiny.workdir)
    config.model.positions = "learned"
    config.decode.max_extra = 500
    config.decode.beam_size = 1
    translator = make_translator(config, *load_tokenizers(tiny.workdir))
    variables = {"params": jax.jit(translator.init_params)(jax.random.key(0))}
    [[best]] = translator.translate(variables, ["a b c d " * 30])
    assert len(translator.target_tokenizer.encode([best.text])[0]) <= 32
    [(log_prob, tokens)] = translator.score(variables, ["a " * 90], ["b " * 90])
    assert (np.isfinite(log_prob), tokens) == (True, 32)
    assert len(said) == 3
    assert all("model.max_length=32" in line for line in said)


def test_input_of_wide_characters_is_told_its_encoding(tiny, tmp_path):
    path = tmp_path / "wide"
    path.write_text("a b\nc d\n", encoding="utf-16")
    arguments = "--mode=translate", f"--workdir={tiny.workdir}"
    says = "line 1: the text is not UTF-8 but UTF-16", "`iconv -f UTF-16 -t UTF-8`"
    refused(*arguments, f"--input={path}", says=(str(path), *says))
    refused(*arguments, stdin=path.read_bytes(), says=("standard input", *says))


def test_no_search_writes_unknown_padding_or_begin_however_probable(tiny, loaded, monkeypatch):
    translator, variables = loaded
    lines, size = sentences(20), translator.target_tokenizer.vocab_size
    written = [best[0].text for best in translator.translate(variables, lines)]
    letters = collections.Counter("".join(written).replace(" ", ""))
    [favourite] = translator.target_tokenizer.encode([letters.most_common(1)[0][0]])[0]
    # All that is tied has one table: where the favourite is likely, these are far more so.
    params = jax.tree.map(np.array, variables["params"])
    [table] = [leaf for leaf in jax.tree.leaves(params) if len(leaf) == size]
    table[[PAD_ID, UNK_ID, BOS_ID]] = 30 * table[favourite]

    def unknown(beam):
        config = workdir.load_config(tiny.workdir)
        own = make_translator(config, *load_tokenizers(tiny.workdir))
        found = own.translate({"params": params}, lines, beam)
        return sum("⁇" in best[0].text for best in found)

    assert (unknown(1), unknown(3)) == (0, 0)
    monkeypatch.setattr(search, "NEVER_WRITTEN", (PAD_ID,))
    assert unknown(1) > 0  # the control: it would
