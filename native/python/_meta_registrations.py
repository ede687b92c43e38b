@register_meta(aten.gdh.default)
def meta_gdh(self):
    return self.new_empty((self.numel(),))
