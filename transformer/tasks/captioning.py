"""Image captioning with a patch encoder and a text decoder, evaluated like translation."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from transformer.data import held_out
from transformer.data.encode import TOKENIZER
from transformer.data.pairs import LabelledPicture, Pair
from transformer.data.pictures.patches import CaptionPlan, PictureStore, store_pictures
from transformer.data.pictures.sources import (
    CAPTIONS,
    REGISTRY,
    PictureSplit,
    look_of,
    open_pictures,
)
from transformer.data.token_store import TokenStore, digest_arrays
from transformer.data.tokenizer import Tokenizer, load_tokenizer, save_tokenizer
from transformer.errors import UserError
from transformer.inference.pictures import Captioner, PictureReader
from transformer.model.build import build_model
from transformer.model.config import ModelConfig
from transformer.tasks import pair_scores
from transformer.tasks.base import (
    PICTURES,
    check_positions,
    model_fields,
    plan_summary,
    refuse_empty,
)
from transformer.tasks.classification import SCORED_SPLITS
from transformer.tasks.pictures import PICTURE, make_picture_network, read_held_out, train_tokenizer
from transformer.tasks.translation import TranslationTask, TranslationText, check_layers


@dataclasses.dataclass(frozen=True)
class CaptionCorpus:
    """The encoded training images and captions, and the held-out images and captions.

    Attributes:
      items: the items of each held-out split; `pixels` has their images.
      too_long: number of training captions that exceed `data.max_tokens`.
    """

    source: PictureStore
    target: TokenStore
    source_tokenizer: PictureReader
    target_tokenizer: Tokenizer
    items: Mapping[str, Sequence[LabelledPicture]]
    pixels: Mapping[str, UInt8[np.ndarray, "pictures S S C"]]
    too_long: int
    sampler, links, reports = None, None, ()

    @property
    def arrays_digest(self) -> str:
        """Digest of all arrays in the training set."""
        return digest_arrays(*self.source, *vars(self.target).values())


class CaptionTask(TranslationTask):
    """Trains and evaluates a captioning model; a pair has an image name and the captions.

    A generated caption is scored against all references, and the loss includes each reference.
    """

    noun, model_noun, invitation = "picture", "captioner", "Drop a picture"
    sources = REGISTRY
    operations = ("caption", "next_tokens", "alternatives", "beam")
    reads, label_type = PICTURES, CAPTIONS

    predictor: Captioner  # pyright: ignore[reportIncompatibleVariableOverride]
    plan_type = CaptionPlan
    loss_references = "each"

    def check_model(self) -> None:
        make_picture_network(self.config.model, self.config.tokenizer.vocab_size, 2)

    def read_text(self, folder: Path | None) -> TranslationText:
        pair_scores.check_scores(self.config.evaluate)
        data, size = self.config.data, self.config.model.patch_size
        source = open_pictures(data, look_of(self.config.model, self.config.data), CAPTIONS)
        items = {split: source.splits[split] for split in SCORED_SPLITS}
        refuse_empty(items, "")
        train = source.splits["train"]
        captions = [item.label for item in train]
        tokenizer = train_tokenizer(captions, self.config, folder).writer().typed()
        ids = tokenizer.encode(captions)
        short = [i for i, part in enumerate(ids) if len(part) < data.max_tokens]
        reader = PictureReader(look_of(self.config.model, self.config.data), size)
        corpus = CaptionCorpus(
            store_pictures([train[i] for i in short], source.pixels["train"], size),
            TokenStore.of([ids[i] for i in short]),
            reader,
            tokenizer,
            items,
            {split: source.pixels[split] for split in items},
            len(train) - len(short),
        )
        return TranslationText(self._know(reader, items, corpus.pixels), corpus)

    def read_kept_text(self, folder: Path) -> TranslationText:
        texts = read_held_out(folder, None)
        return TranslationText(self._know(self.predictor.source_tokenizer, *texts), None)

    def make_given_text(self, folder: Path, given: PictureSplit) -> TranslationText:
        """Returns a dataset whose only split, "test", holds the given images and captions."""
        items, pixels = {"test": given.items}, {"test": given.pixels}
        return TranslationText(self._know(self.predictor.source_tokenizer, items, pixels), None)

    def _know(
        self,
        reader: PictureReader,
        items: Mapping[str, Sequence[LabelledPicture]],
        pixels: Mapping[str, UInt8[np.ndarray, "pictures S S C"]],
    ) -> dict[str, list[Pair]]:
        """Returns the pairs of each split, and adds their images to the reader's `held_out`."""
        pairs = {}
        for split, part in items.items():
            captions: dict[str, list[str]] = {}
            for item in part:
                captions.setdefault(item.name, []).append(item.label)
            rows = captions.items()
            pairs[split] = [Pair(name, first, None, (*more,)) for name, (first, *more) in rows]
            names = [item.name for item in part]
            reader.know(names, store_pictures(part, pixels[split], reader.size))
        return pairs

    def loss_pairs(self, split: str) -> list[Pair]:
        pairs = self.text.pairs[split]
        return [Pair(pair.source, text) for pair in pairs for text in pair.references]

    def texts_of_rows(self, split: str) -> list[int]:
        pictures = [n for n, p in enumerate(self.text.pairs[split]) for _ in p.references]
        return [pictures[i] for rows, _ in self.numbered_batches(split) for i in rows]

    @property
    def train_tokens(self) -> dict[str, int]:
        return {"captions": len(self.plan.target.tokens)}

    def make_predictor(self) -> Captioner:
        corpus = self.text.corpus
        return self._make_captioner(corpus.source_tokenizer, corpus.target_tokenizer)

    def load(self, folder: Path) -> Captioner:
        tokenizer = load_tokenizer(folder / TOKENIZER).writer().typed()
        look = look_of(self.config.model, self.config.data)
        reader = PictureReader(look, self.config.model.patch_size)
        return self._make_captioner(reader, tokenizer)

    def _make_captioner(self, reader: PictureReader, tokenizer: Tokenizer) -> Captioner:
        settings = self.config.model
        check_layers(settings, self.config.task)
        if settings.architecture != "transformer":
            raise UserError(
                f"config.model.architecture={settings.architecture} writes no captions: set "
                "config.model.architecture=transformer"
            )
        model = build_model(ModelConfig(1, tokenizer.vocab_size, **model_fields(settings)))
        check_positions(PICTURE, 1 + reader.grid**2, model.config.max_length)
        return Captioner(model, reader, tokenizer, self.config.decode)

    @property
    def max_tokens(self) -> int:
        return max(self.config.data.max_tokens, 1 + self.predictor.source_tokenizer.grid**2)

    def save_assets(self, workdir: Path) -> None:
        corpus = self.text.corpus
        save_tokenizer(workdir / TOKENIZER, corpus.target_tokenizer)
        held_out.save(workdir, corpus.items, corpus.pixels)

    def notes(self) -> list[str]:
        references = (pair.target for pair in self.decoded_pairs("validation", final=False))
        return [pair_scores.choose_tokenizer(self.config.evaluate, references)[1]]

    def data_summary(self) -> dict[str, Any]:
        corpus = self.text.corpus
        parts = {"train": corpus.target, **corpus.items}
        splits = {split: {"captions": len(part)} for split, part in parts.items()}
        splits["train"]["left out, longer than data.max_tokens"] = corpus.too_long
        return {
            "splits": splits,
            "oov_rate": 0.0,
            "vocabulary": {"captions": corpus.target_tokenizer.vocab_size},
            **plan_summary(self.plan),
        }
