from torch.testing._internal.added_opinfos import op_infos as added_op_infos


_added_op_infos = added_op_infos({op.name for op in op_db})
op_db += _added_op_infos
ops_and_refs += _added_op_infos
