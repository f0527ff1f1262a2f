"""Symptoms: plain numbers of one step -> events; one file a symptom.

Figures of healthy and failing runs beside a threshold were measured on 117 failing trainings of 29 causes and 82
healthy ones, later ones on the fit and check splits of `benchmarks/corpus`.
"""
