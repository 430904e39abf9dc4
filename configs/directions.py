"""One model for both directions of the built-in English-German grammar; a tag selects one.

    python launch.py --config=configs/directions.py --workdir=runs/directions
    echo "The man sees a dog." | python launch.py --workdir=runs/directions --mode=translate \\
        --source_tag="<2de>"

The two corpora have the same pairs, the second one with sides swapped: `<2de>` before a source
asks for German, `<2en>` for English (Johnson et al. 2017). A pair that is held out in one direction
is not trained on in the other. Each direction is scored as `test_en_de` and `test_de_en`.
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
