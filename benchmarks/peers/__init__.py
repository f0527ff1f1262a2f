"""Peers on the corpus's test split: what each says of the trainings that ours is measured on."""
