"""One model that translates the built-in English-German grammar in both directions.

    python launch.py --config=configs/directions.py --workdir=runs/directions
    echo "The man sees a dog." | python launch.py --workdir=runs/directions --mode=translate \\
        --source_tag="<2de>"

The two corpora have the same pairs, but source and target are swapped in the second. The tag
`<2de>` before a source requests German, and `<2en>` English (Johnson et al. 2017). Pairs held out
in one direction are not used to train the other. The scores are `test_en_de` and `test_de_en`.
"""

from transformer.config import load_page


def get_config():
    config = load_page("quickstart").get_config()
    config.name = "directions"
    config.data.corpora = (
        {"name": "en_de", "source_tag": "<2de>"},
        {"name": "de_en", "source_tag": "<2en>", "reverse": True},
    )
    config.train.steps = 2400
    config.train.evaluate_every = 480
    return config
