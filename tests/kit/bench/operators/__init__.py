"""A module for each operator, with a function ``cases`` that returns its cases."""
