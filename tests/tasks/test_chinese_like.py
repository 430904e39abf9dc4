"""A language without blanks and with full-width punctuation is learnt by the defaults."""

import json
import random
import subprocess
import sys

import pytest

from places import ROOT

# The words of "Sir, it is hot today, the king drinks tea!" and "先生，今天很热，国王喝茶！".
WORDS = """
Teacher 老师,Doctor 医生,Mother 妈妈,Father 爸爸,Child 孩子,Driver 司机,Students 同学们,Sir 先生
cold 很冷,hot 很热,raining 下雨,snowing 下雪,windy 刮风,sunny 晴天,cloudy 多云,foggy 有雾
today 今天,tomorrow 明天,tonight 今晚,on Monday 星期一,in the park 公园里,at home 家里,at night 晚上
my brother 我哥哥,her friend 她的朋友,the singer 歌手,our neighbour 我们的邻居,the farmer 农民,\
the soldier 士兵,his sister 他妹妹,the painter 画家,the nurse 护士,the cook 厨师,the king 国王,\
my grandfather 我爷爷,our aunt 我们的阿姨,the old man 老人,the judge 法官,the writer 作家
buys apples 买苹果,sees a dog 看见一只狗,reads a letter 读信,sells fish 卖鱼,draws birds 画鸟,\
looks for a hat 找帽子,drinks tea 喝茶,writes a book 写书,cleans the room 打扫房间,\
opens the door 打开门,carries water 挑水,sings a song 唱歌,eats bread 吃面包,washes the car 洗汽车,\
likes flowers 喜欢花,learns English 学习英语,waits for the bus 等公共汽车
. 。,! ！,? ？
"""
SOURCE, TARGET = "{0}, it is {1} {2}, {3} {4}{5}", "{0}，{2}{1}，{3}{4}{5}"


def corpus(count):
    """This many lines of source, tab and target, drawn by a seed; none comes twice."""
    rows = [[word.rsplit(" ", 1) for word in row.split(",")] for row in WORDS.strip().split("\n")]
    draw, found = random.Random(3).choice, {}
    while len(found) < count:
        source, target = zip(*map(draw, rows), strict=True)
        found[f"{SOURCE.format(*source)}\t{TARGET.format(*target)}\n"] = None
    return "".join(found)


@pytest.mark.slow
def test_chinese_is_learnt_by_the_defaults_and_the_best_checkpoint_is_the_best(tmp_path):
    text, run = tmp_path / "zh.tsv", tmp_path / "run"
    text.write_text(corpus(2500))
    keys = {"train_source": text, "train_target": "", "cache_dir": tmp_path / "cache"}
    command = [sys.executable, "launch.py", "--config=configs/own_text.py", f"--workdir={run}"]
    command += [f"--config.data.{key}={value}" for key, value in keys.items()]
    # Of 200 epochs, so that it takes two minutes.
    ended = subprocess.run(
        [*command, "--config.train.epochs=40"], cwd=ROOT, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    assert "sacreBLEU's tokenizer zh (evaluate.sacrebleu_tokenizer=auto)" in ended.stdout
    results = json.loads((run / "results.json").read_text())
    assert results["test"]["exact_match"] >= 95
    assert results["test"]["bleu"] >= 95
    assert "|tok:zh|" in results["test"]["bleu_signature"]
    assert {*"，。！？"} <= {*(run / "translations/test.txt").read_text()}
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    evaluations = [line for line in lines if line["split"] == "validation"]
    best = max(evaluations, key=lambda line: (line["bleu"], -line["loss"]))
    candidates = {own["what"]: own for own in results["weights"]["candidates"]}
    assert candidates["best"]["steps"] == [best["step"]]
    assert candidates["best"]["score"] == best["bleu"]
    assert best["bleu"] > evaluations[0]["bleu"]  # a control: there was something to learn
