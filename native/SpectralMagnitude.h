#pragma once

#include <ATen/native/DispatchStub.h>

namespace at {
class TensorBase;
}

namespace at::native {

// result = grad * spectrum / |spectrum|, and 0 where the spectrum is; halved in the columns that stand for two of the
// transform of a real signal with last_dim_size columns. All tensors are contiguous.
using spectrum_grad_fn =
    void (*)(const TensorBase& result, const TensorBase& grad, const TensorBase& spectrum, int64_t last_dim_size);

// One complex transform computes two real rows, a and b, as the parts of a + ib (E. O. Brigham, The Fast Fourier
// Transform, 1974, section 10-10). The rows 2p and 2p + 1 of an image are pair p. The last row of an odd number is
// paired with zeros.

// spectrum [images, columns, rows] is that of real rows, of which it has half: [images, pairs, all columns].
using pair_rows_fn = void (*)(const TensorBase& pairs, const TensorBase& spectrum);
// pairs [images, pairs, columns] to rows [images, rows, columns].
using part_rows_fn = void (*)(const TensorBase& rows, const TensorBase& pairs);

DECLARE_DISPATCH(spectrum_grad_fn, spectrum_grad_stub)
DECLARE_DISPATCH(pair_rows_fn, pair_rows_stub)
DECLARE_DISPATCH(part_rows_fn, part_rows_stub)

} // namespace at::native
