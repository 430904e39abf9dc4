"""What a trained run can be used for, by its task."""

from experiments import (
    classifying,
    embedding_map,
    generating,
    head_importance,
    positions,
    report,
    translating,
)

# Each module has `show`, called after training. Of its `FOLDER_MODES` each takes (config, folder,
# options) and returns the files it wrote; of its `LINE_MODES` each takes lines of text to lines of
# text. `COMMON_MODES` are the folder modes of every task.
COMMON_MODES = {
    "embeddings": embedding_map.embeddings,
    "heads": head_importance.heads,
    "positions": positions.positions,
    "report": report.report,
}
REGISTRY = {
    "translation": translating,
    "language_model": generating,
    "classification": classifying,
}
