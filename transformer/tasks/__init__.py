"""The task classes, keyed by the value of `config.task`."""

from transformer.tasks.captioning import CaptionTask
from transformer.tasks.classification import ClassificationTask
from transformer.tasks.language_model import LanguageModelTask
from transformer.tasks.pictures import PictureTask, QuestionTask
from transformer.tasks.translation import TranslationTask

REGISTRY = {
    "translation": TranslationTask,
    "language_model": LanguageModelTask,
    "classification": ClassificationTask,
    "captioning": CaptionTask,
    "image_classification": PictureTask,
    "visual_question_answering": QuestionTask,
}
