"""Write the skeleton of a new operator: ``skeleton`` runs ``python -m graft.new`` with the base wheel's ``torchgen``."""
