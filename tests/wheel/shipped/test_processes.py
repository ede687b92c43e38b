"""The shipped operators and modules in other processes: workers of a data loader, forked and spawned."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset


class Embedded(Dataset[Tensor]):
    """Calls modules and operators in a data loader's worker process."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.images = torch.rand(4, 3, 6, 6)
        self.model = nn.Sequential(nn.DepthwiseConv2d(3, 3), nn.Flatten(0), nn.Affine(3 * 4 * 4, 2))

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor:
        with torch.no_grad():
            return torch.twice_plus(self.model(self.images[index]), torch.ones(2))


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_of_a_data_loader(context: str) -> None:
    data = Embedded()
    batches = list(DataLoader(data, batch_size=2, num_workers=2, multiprocessing_context=context))
    torch.testing.assert_close(torch.cat(batches), torch.stack([data[index] for index in range(4)]))
