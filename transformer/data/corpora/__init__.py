"""Several corpora in one training: settings, tags and proportions."""
