"""Text in, text out: whatever the lines hold, whoever their neighbours are."""

from tiny_run import refused

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
        (("bad", "out"), "is not UTF-8"),
        (("in", "in"), ("is a file that is read", "name another file")),
        (("in", "nowhere/out"), ("nowhere is not a folder",)),
    ]:
        paths = f"--input={tmp_path / files[0]}", f"--output={tmp_path / files[1]}"
        refused("--mode=translate", f"--workdir={tiny.workdir}", *paths, says=says)
    assert (tmp_path / "out").read_text() == "precious"
    assert (tmp_path / "in").read_text() == "a b\n"
