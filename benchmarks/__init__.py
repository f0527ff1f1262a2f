"""Measurements of NeuralDBG: the labelled corpus, accuracy on it, calibration and bars."""
