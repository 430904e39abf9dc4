"""Tasks by the name that `config.task` gives."""

from transformer.tasks.translation import TranslationTask

REGISTRY = {"translation": TranslationTask}
