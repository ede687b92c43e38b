@register_meta(aten.gr_negate.default)
def meta_gr_negate(self):
    return torch.empty_like(self)
