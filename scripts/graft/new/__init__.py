"""Write the skeleton of a new operator: ``skeleton`` runs ``python -m graft.new`` with the torchgen of the base."""
