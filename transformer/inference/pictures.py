"""Image model inference: classification, visual question answering and captioning."""

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, UInt8

from transformer.analysis.attention import Attention, GridPicture
from transformer.data.batches import Batch, make_targets
from transformer.data.pictures.patches import (
    PictureStore,
    SeenPicture,
    patch_names,
    read_picture,
    read_questions,
    stack_pictures,
    without_questions,
)
from transformer.data.pictures.sources import Look
from transformer.data.tokenizer import Ids, Tokenizer
from transformer.data.words import Words
from transformer.errors import UserError
from transformer.inference.base import Variables
from transformer.inference.classifier import ClassPredictor
from transformer.inference.hypotheses import Translation
from transformer.inference.translator import Translator
from transformer.model.architecture import Network
from transformer.model.config import ModelConfig
from transformer.model.vision.inputs import PictureText, from_patches, to_patches

logger = logging.getLogger(__name__)

CLASS_TOKEN = "<class>"
MAX_SENT = 1024  # images of requests, which outnumber those that wait for an answer


class PictureClassifier(ClassPredictor):
    """An image classifier, or a model that answers questions about images.

    A line is the file name of an image, followed by a tab and a question if the model was trained
    with questions; an item is a `SeenPicture`.

    Args:
      config: config of the encoder, or of the baseline that replaces it.
      look: format of the input images.
      blind: whether the pixels of all images are replaced by zeros.
    """

    def __init__(
        self,
        model: Network,
        config: ModelConfig,
        look: Look,
        tokenizer: Tokenizer | None,
        labels: Sequence[str],
        max_tokens: int,
        batch_size: int,
        blind: bool = False,
    ):
        self.config, self.look, self.blind = config, look, blind
        super().__init__(model, tokenizer, labels, max_tokens if tokenizer else 0, batch_size)
        self._compiled_look = jax.jit(self._look)

    @property
    def grid(self) -> int:
        """Number of patches per side of an image."""
        return self.look.side // self.config.patch_size

    @property
    def before(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 1 + self.grid**2

    def stack(self, items: Sequence[SeenPicture], rows: int, length: int) -> PictureText:
        numbers = self.config.patch_size**2 * self.look.channels
        shape = self.grid**2, numbers
        return stack_pictures(items, shape, rows, length if self.tokenizer else 0)

    def tokens_of(self, item: SeenPicture) -> Ids:
        return item.tokens

    def names(self, item: SeenPicture) -> list[str]:
        """Returns the class token, the patches (row,column from one) and the question tokens."""
        words = []
        if self.tokenizer:
            words = ["<s>", *self.tokenizer.pieces([int(i) for i in item.tokens[1:]])]
        return [CLASS_TOKEN, *patch_names(self.grid), *words]

    def is_blank(self, line: str, item: SeenPicture | None = None) -> bool:
        return not line.strip()

    def unread(self, line: str) -> int:
        [ids] = read_questions([self._split(line, "the line")[1]], self.tokenizer, None)
        return max(0, len(ids) - self.max_tokens)

    def read(self, lines: Sequence[str], first_line: int | None = None) -> list[SeenPicture]:
        items = []
        for number, line in enumerate(lines, first_line or 1):
            if self.is_blank(line):  # a blank line gets no prediction
                empty = np.zeros((self.look.side, self.look.side, self.look.channels), np.uint8)
                items.append(self.see(empty, ""))
                continue
            name, question = self._split(line, f"line {number}")
            pixels = read_picture(Path(name).expanduser(), *self.look)
            items.append(self.see(pixels, question))
            if first_line is not None and (unread := self.unread(line)):
                logger.warning(
                    f"line {number}: the last {unread} tokens of the question are not read "
                    f"(data.max_tokens={self.max_tokens})"
                )
        return items

    def see(self, pixels: Any, question: str) -> SeenPicture:
        """Returns the model inputs for an image and a question."""
        [tokens] = read_questions([question], self.tokenizer, self.max_tokens)
        pixels = np.zeros_like(pixels) if self.blind else pixels
        return SeenPicture(to_patches(pixels, self.config.patch_size), tokens)

    def attention_of(self, variables: Variables, item: SeenPicture, unread: int = 0) -> Attention:
        pixels = from_patches(np.asarray(item.patches), self.config.patch_size)
        attention = super().attention_of(variables, item, unread)
        return attention._replace(picture=GridPicture(pixels, self.grid))

    def looks(
        self, variables: Variables, items: Sequence[SeenPicture]
    ) -> list[Float[np.ndarray, "layers H P"]]:
        """Returns the attention weights from the class token to the patches of each item."""
        results: list[Any] = [None] * len(items)
        for rows, batch in self.batches(items):
            weights = np.asarray(self._compiled_look(variables, batch.source))
            for row, i in enumerate(rows):
                results[i] = weights[:, row]
        return results

    def _look(self, variables, source):
        weights = self.batch_attention(variables, source)["encoder_self"].weights
        return weights[:, :, :, 0, 1 : self.before]

    def _split(self, line: str, place: str) -> tuple[str, str]:
        """Splits a line into a file name and a question, or '' if the model has no questions."""
        name, _, question = line.strip().partition("\t")
        if bool(question.strip()) != bool(self.tokenizer):
            what = "no question" if self.tokenizer else "a question"
            how = "picture<TAB>question" if self.tokenizer else "the name of a picture"
            raise UserError(f"{place} has {what}: this model reads {how}")
        return name, question.strip()


class PictureReader:
    """Reads image files as patches, with the interface of a source tokenizer.

    Args:
      look: format of the input images.
      size: pixels per side of a patch.

    Attributes:
      held_out: patches of the held-out images, keyed by name; all other names are file names.
    """

    words = Words()

    def __init__(self, look: Look, size: int):
        self.look, self.size, self.grid = look, size, look.side // size
        self.held_out: dict[str, UInt8[np.ndarray, "P F"]] = {}
        self._sent: dict[str, UInt8[np.ndarray, "P F"]] = {}
        self.digest = hashlib.sha256(repr((*look, size)).encode()).hexdigest()[:16]

    def know(self, names: Sequence[str], pictures: PictureStore) -> None:
        """Adds patches to `held_out`; raises UserError if two images have the same name."""
        for name, patches in zip(names, pictures.patches[pictures.pictures], strict=True):
            if not np.array_equal(self.held_out.setdefault(name, patches), patches):
                raise UserError(
                    f"two held-out pictures have the name {name!r}: rename one of them, or put "
                    "each set into a folder of its own and its table above both"
                )

    def receive(self, data: bytes, name: str) -> str:
        """Keeps an image of a request among the newest `MAX_SENT`; returns its name for `encode`.

        Args:
          data: the content of an image file, which is called `name` in messages.
        """
        patches = to_patches(read_picture(data, *self.look, name=name), self.size)
        key = hashlib.sha256(patches.tobytes()).hexdigest()
        self._sent = dict([*self._sent.items(), (key, patches)][-MAX_SENT:])
        return key

    def encode(self, lines: Sequence[str]) -> list[UInt8[np.ndarray, "P F"]]:
        """Returns the patches of each image, or zero patches for a blank line."""
        return [self._read(line.strip()) for line in lines]

    def _read(self, name: str) -> UInt8[np.ndarray, "P F"]:
        if not name:
            return np.zeros((0, self.size**2 * self.look.channels), np.uint8)
        for known in (self._sent, self.held_out):
            if name in known:
                return known[name]
        return to_patches(read_picture(Path(name).expanduser(), *self.look), self.size)

    def pieces(self, patches: UInt8[np.ndarray, "P F"]) -> list[str]:
        """Returns the name of each patch, "row,column", with numbers from one."""
        return patch_names(self.grid)[: len(patches)]


class Captioner(Translator):
    """An image captioning model; a line is the file name of an image."""

    source_tokenizer: PictureReader

    def make_batch(
        self, sources: Sequence[Any], targets: Sequence[Ids], rows: int, length: int
    ) -> Batch:
        reader = self.source_tokenizer
        shape = rows, reader.grid**2, reader.size**2 * reader.look.channels
        patches = np.zeros(shape, np.uint8)
        for row, picture in enumerate(sources):
            patches[row, : len(picture)] = picture
        return Batch(without_questions(patches), *make_targets(targets, rows, length))

    def read_best(self, hypotheses: Any, line: str, most: int, kind="beam") -> list[Translation]:
        # Repetitions in a file name must not excuse repetitions in the caption.
        return super().read_best(hypotheses, "", most, kind)

    def source_names(self, ids: Any) -> list[str]:
        return [CLASS_TOKEN, *self.source_tokenizer.pieces(ids)]

    def attention(self, variables: Any, source: str, target: str | None = None) -> Attention:
        attention = super().attention(variables, source, target)
        [patches], reader = self.source_tokenizer.encode([source]), self.source_tokenizer
        picture = GridPicture(from_patches(patches, reader.size), reader.grid)
        return attention._replace(picture=picture)
