"""Symptoms: plain numbers of one step -> events; one file a symptom."""
