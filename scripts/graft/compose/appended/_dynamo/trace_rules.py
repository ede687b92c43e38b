# Dynamo has a handwritten list of the functions that it may put into a graph. Methods need no rule.
from torch import _added_operators


torch_c_binding_in_graph_functions.update(
    (name, TorchInGraphFunctionVariable) for name in _added_operators.FUNCTIONS if not name.startswith("torch.Tensor.")
)
