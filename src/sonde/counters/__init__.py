"""Which events a processor can count and what follows from them: data files, formulas, detection."""
