"""Train with PyTorch Lightning, and go on in mid-epoch after a kill.

    python examples/lightning_trainer.py run/

Kill it at any moment and start it again: it goes on with the batch after the last checkpoint, and ends with the weights
of a run that was never killed.
"""

import sys
from pathlib import Path

import lightning
import numpy as np
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

import penstock as ps

EPOCHS, EVERY = 3, 5
folder = Path(sys.argv[1])

x = np.random.default_rng(0).random((1001, 8), np.float32)
# A feed stands where a DataLoader would: Lightning saves its place in the data with the model, and gives it back.
feed = ps.from_arrays((x, x.sum(axis=1) + 0.1)).shuffle(seed=7).batch(48).to_torch()


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 1))

    def training_step(self, batch, number):
        inputs, targets = batch
        print(f"epoch {self.current_epoch}, batch {number}", flush=True)
        return ((self.layers(inputs)[:, 0] - targets) ** 2).mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)

    # Lightning does not save the state of random numbers, which dropout draws from: for the same weights, save it, too.
    def on_save_checkpoint(self, checkpoint):
        checkpoint["random"] = torch.get_rng_state()

    def on_load_checkpoint(self, checkpoint):
        torch.set_rng_state(checkpoint["random"])


torch.manual_seed(0)
model = Model()
trainer = lightning.Trainer(
    max_epochs=EPOCHS,
    accelerator="cpu",
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    callbacks=[ModelCheckpoint(folder, every_n_train_steps=EVERY, save_last=True)],
)
last = folder / "last.ckpt"
trainer.fit(model, feed, ckpt_path=last if last.exists() else None)
torch.save(model.state_dict(), folder / "weights.pt")
print(f"trained for {trainer.global_step} steps")
