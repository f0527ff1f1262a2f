"""Many trainings at once: which causes, how often, and which hyper-parameters go with each."""
