"""Who names a sweep's folder where a run is meant is told its trials."""

import json

import source_settings
from configs import quickstart
from tiny_run import refused
from transformer.files import write_json
from transformer.runs.workdir import COMMAND, find_trials, refuse_sweep


def write_trial(folder, number, changes, score=None, metric="bleu"):
    config = quickstart.get_config()
    config.update_from_flattened_dict({"train.best_metric": metric, **changes})
    place = folder / f"trials/{number:03d}"
    place.mkdir(parents=True)
    (place / "config.json").write_text(json.dumps(config.to_dict()))
    if score is not None:
        (place / "results.json").write_text(json.dumps({"validation": {metric: score}}))


def test_the_best_of_the_trials_is_told(tmp_path):
    for number, (heads, seed, score) in enumerate([(2, 0, 11.0), (2, 1, 31.256), (4, 0, None)]):
        write_trial(tmp_path, number, {"model.num_heads": heads, "seed": seed}, score)
    found = find_trials(tmp_path)
    assert [trial.folder.name for trial in found] == ["001", "000", "002"]
    assert found[0].settings == {"seed": 1, "model.num_heads": 2}
    assert found[0].score == 31.256
    says = f"name one of its trials, such as {tmp_path}/trials/001, the best"
    with source_settings.refused(f"{tmp_path} holds a sweep, not a run", says):
        refuse_sweep(tmp_path)
    assert found[0].name == "trials/001 (num_heads=2, seed=1)"


def test_a_mode_of_a_sweeps_folder_names_its_trials(tmp_path):
    write_json(tmp_path / COMMAND, {"command": "python launch.py --config=c.py --workdir=w"})
    with source_settings.refused("none of its trials has begun"):
        refuse_sweep(tmp_path)
    write_trial(tmp_path, 3, {"seed": 1}, 12.0)
    again = "type: python launch.py --config=c.py --workdir=w"
    says = ("holds a sweep", "trials/003", again)
    refused(f"--workdir={tmp_path}", "--mode=translate", says=says)
