"""The ids that every vocabulary has."""

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3  # the same ids in every vocabulary
