"""Write the skeleton of a new operator: ``new_op`` runs ``python -m graft.new`` with the base wheel's ``torchgen``."""
