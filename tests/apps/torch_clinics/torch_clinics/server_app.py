"""FedAvg on a network that PyTorch's global generator initialises."""

import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from torch_clinics.model import network

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    start = ArrayRecord(network().state_dict())
    rounds = context.run_config["num-server-rounds"]
    result = FedAvg().start(grid, start, num_rounds=rounds)
    torch.save(result.arrays.to_torch_state_dict(), "final_model.pt")
