"""What a trained run can be used for, by its task."""

from experiments.embeddings import pictures
from experiments.heads import importance
from experiments.positions import pictures as positions
from experiments.report import page
from experiments.tasks import classification, language_model, translation

# Each module has `show`, called after training. Of its `FOLDER_MODES` each takes (config, folder,
# options) and returns the files it wrote; of its `LINE_MODES` each takes lines of text to lines of
# text. `COMMON_MODES` are the folder modes of every task.
COMMON_MODES = {
    "embeddings": pictures.embeddings,
    "heads": importance.heads,
    "positions": positions.positions,
    "report": page.report,
}
REGISTRY = {
    "translation": translation,
    "language_model": language_model,
    "classification": classification,
}
