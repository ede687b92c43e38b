"""``graft adopt``: turn the operators of an extension into native operators. Its sources are not moved or parsed.

A child process reads the dispatcher before and after it imports the extension, to find the operators (``child``). Each
operator becomes an entry with a CompositeImplicitAutograd kernel that calls the extension's operator (``plan``,
``forwards``). So the entry has the results, gradients, fake implementations and batching rules of that operator.
"""
